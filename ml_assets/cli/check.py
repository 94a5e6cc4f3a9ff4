"""ml-assets check: every mistake in a pipeline's folder, before anything is run."""

import argparse

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "check",
        help="report every wrong field of a spec: file, line, key, value, rule, remedy",
    )
    parser.add_argument("pipeline", nargs="?", help="default: all of them")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.check.check import (
        check_folder,
        cluster_trouble,
        memory_mistakes,
        missing_here,
        spot_mistakes,
    )
    from ml_assets.errors import SpecError, counted
    from ml_assets.spec.load import pipeline_folders

    settings = read_settings()
    folders = pipeline_folders(settings)
    if arguments.pipeline and arguments.pipeline not in folders:
        raise SpecError(f"There is no pipeline {arguments.pipeline!r}; found {sorted(folders)}.")
    wanted = [arguments.pipeline] if arguments.pipeline else sorted(folders)
    mistakes = 0
    for name in wanted:
        found = check_folder(folders[name]) + spot_mistakes(folders[name], settings)
        found += memory_mistakes(folders[name], settings)
        mistakes += len(found)
        print(f"{name}: {counted(len(found), 'mistake') if found else 'good'}")
        for mistake in found:
            print(f"  {mistake}")
        for warning in missing_here(folders[name], settings):
            print(f"  warning: {warning}")
    if trouble := cluster_trouble(settings):
        mistakes += 1
        print(f"cluster: {trouble}")
    return ERROR if mistakes else DONE
