"""ml-assets render: what a pipeline is on a Kubernetes cluster, printed and not created."""

import argparse
import json

from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_cluster, read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "render",
        help="print the Job and the Service that a training is on a cluster; creates nothing",
        description="Print what the Kubernetes launcher would create, as YAML; no cluster is"
        " asked. The digest in the names stands for that of the data. Try it on a cluster:"
        " ml-assets render PIPELINE | kubectl apply --dry-run=server -f -",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--verb", choices=["train", "score", "sanity"], default="train")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="of a training that goes on with fewer nodes"
    )
    parser.add_argument("--attempt", type=int, metavar="N", default=1)
    parser.add_argument("--json", action="store_true", help="one List instead of YAML documents")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.render import as_list, as_yaml, job_order, rendered
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders

    folder = find_pipeline(pipeline_folders(read_settings()), arguments.pipeline)
    spec, cluster = load_spec(folder), read_cluster()
    order = job_order(spec, cluster, arguments.verb, arguments.nodes, arguments.attempt)
    said, made = rendered(order, cluster)
    if arguments.json:
        print(json.dumps(as_list(made), indent=2))
    else:
        print(f"# {said}")
        print(as_yaml(made), end="")
    return DONE
