"""ml-assets forget: retire a pipeline; its history stays."""

import argparse

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import prepared_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "forget",
        help="retire a pipeline: nothing of it is made again, its history stays",
        description="Retires a pipeline in this state folder. It leaves the lineage, its sensors"
        " and schedules stop, and no run makes anything of it. Its ledger, records and models stay"
        " and can be read and used. --undo brings it back.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--author", default="", metavar="NAME", help="who answers for it")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why")
    parser.add_argument("--undo", action="store_true", help="let it run again")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.home import lock
    from ml_assets.actions.reload import reload_ui
    from ml_assets.errors import SpecError
    from ml_assets.spec.load import find_pipeline, pipeline_folders
    from ml_assets.store.retired import bring_back, retire

    name, settings = arguments.pipeline, prepared_settings()
    find_pipeline(pipeline_folders(settings), name)
    if not arguments.undo and not (arguments.author.strip() and arguments.reason.strip()):
        raise SpecError("Who retires it, and why? Add --author NAME --reason TEXT.")
    with lock(settings, f"forget {name}"):
        if not arguments.undo:
            retire(settings, name, arguments.author, arguments.reason)
            print(f"{name} is retired: nothing of it is made again; status, history, verify, read")
            print(f"and predict go on. To bring it back: ml-assets forget {name} --undo")
        elif bring_back(settings, name):
            print(f"{name} runs again: its sensors and schedules go on as they were")
        else:
            print(f"{name} was not retired: nothing to undo")
    print(reload_ui(settings))
    return DONE
