"""ml-assets serve: the release of a pipeline over HTTP."""

import sys

import click

from ml_assets.cli import options
from ml_assets.cli.session import opened
from ml_assets.errors import SettingsError, install
from ml_assets.settings.access import SERVE_TOKENS, read_tokens

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SECONDS = click.FloatRange(min=0.0)


@click.command(context_settings={"show_default": True})
@options.pipeline
@click.option("--port", type=options.Whole(1, 65535), default=8080)
@click.option(
    "--host", default="127.0.0.1", help=f"Any other address needs a token in {SERVE_TOKENS}."
)
@click.option("--batch-rows", type=options.COUNT, default=256, help="The most rows in a batch.")
@click.option(
    "--batch-wait",
    type=_SECONDS,
    default=0.0,
    help="How long an idle model waits for more rows, in milliseconds.",
)
@click.option(
    "--queue-rows",
    type=options.COUNT,
    default=4096,
    help="The most rows that may wait; further requests get a 429.",
)
@click.option(
    "--drain",
    type=_SECONDS,
    default=0.0,
    help="Seconds to keep answering after SIGTERM, while not ready.",
)
@click.option(
    "--follow",
    type=click.FloatRange(min=0.1),
    default=1.0,
    help="Seconds between reads of the ledger.",
)
def serve(
    pipeline: str,
    port: int,
    host: str,
    batch_rows: int,
    batch_wait: float,
    queue_rows: int,
    drain: float,
    follow: float,
) -> None:
    """Serve the released model over HTTP.

    Verifies the release as `predict` does, tries it on golden vectors, and then answers: rows by
    column name at /predict, the Open Inference Protocol at /v2, Prometheus at /metrics. The server
    follows releases and rollbacks by itself. On SIGTERM it answers all pending requests and stops.

    \b
      ml-assets serve flight_delays --port 8080
    """
    tokens = read_tokens(SERVE_TOKENS)
    if host not in _LOOPBACK and not tokens:
        raise SettingsError(
            f"--host {host} lets other machines ask, and {SERVE_TOKENS} holds no token. Set one:"
            ' export ML_ASSETS_SERVE_TOKENS="$(openssl rand -hex 32)", or leave --host out.'
        )
    try:
        from ml_assets.extras.serving.batching import Limits
        from ml_assets.extras.serving.run_server import Listening, answer
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"The server needs {missing.name}, which is not installed: {install('serving')}"
        ) from missing

    from ml_assets.settings.addresses import require_free

    require_free(host, port, "The release", "--port")
    limits = Limits(batch_rows, batch_wait / 1000, queue_rows)
    listening = Listening(host, port, tokens, drain, follow)
    print(f"http://{host}:{port}  (Ctrl-C ends it)", flush=True)
    answer(opened(pipeline), listening, limits, lambda line: print(line, file=sys.stderr))
