"""ml-assets ops api and ops data-model: data for programs, over HTTP and in SQL."""

import sys
import threading

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR
from ml_assets.cli.session import prepared_settings
from ml_assets.errors import SettingsError, install
from ml_assets.settings.access import (
    API_OPERATORS,
    API_READERS,
    read_data_model,
    read_named_tokens,
)


@click.command
@click.option("--port", type=options.Whole(1, 65535), default=8081, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
def api(port: int, host: str) -> None:
    """Serve the REST API: runs, experiments, models.

    Launches runs through the Dagster at ML_ASSETS_UI_URL, reads experiments, runs and model
    versions, and makes the moves that the evidence allows; /docs lists the routes. While it runs,
    it keeps the views of `ml-assets ops data-model` fresh. Every request needs a token:
    ML_ASSETS_API_READERS and ML_ASSETS_API_OPERATORS hold NAME=TOKEN, separated by spaces.

    \b
      export ML_ASSETS_API_OPERATORS="ada=$(openssl rand -hex 32)"
      ml-assets ops api --port 8081
    """
    readers, operators = read_named_tokens(API_READERS), read_named_tokens(API_OPERATORS)
    if not readers and not operators:
        raise SettingsError(
            f"The API could not answer anyone: {API_READERS} and {API_OPERATORS} hold no token. Set"
            f' one: export {API_OPERATORS}="$USER=$(openssl rand -hex 32)"'
        )
    try:
        import uvicorn

        from ml_assets.extras.api.access import Caller
        from ml_assets.extras.api.app import Api
        from ml_assets.extras.api.data_model import DataModel
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"The API needs {missing.name}, which is not installed: {install('serving')}"
        ) from missing
    from ml_assets.settings.addresses import require_free

    settings = prepared_settings()
    require_free(host, port, "The API", "--port")
    callers = {token: Caller(name, operator=False) for token, name in readers.items()}
    callers |= {token: Caller(name, operator=True) for token, name in operators.items()}
    print(f"http://{host}:{port}/docs  (Ctrl-C ends it)", flush=True)
    app = Api(settings).app(callers)
    model, ended = DataModel.of(settings, read_data_model()), threading.Event()
    threading.Thread(target=model.keep_fresh, args=(ended, _tell), daemon=True).start()
    try:
        uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
    finally:
        ended.set()


@click.command
@click.option("--follow", is_flag=True, help="Stay, and refresh the views within a minute.")
def data_model(follow: bool) -> int:
    """Update the SQL views: pipelines, experiments, runs, model_versions.

    The views show the content of the snapshot store and the ledger. They lie in a SQLite file of
    the state folder, or in the database at ML_ASSETS_DATA_MODEL, a SQLAlchemy URL.

    \b
      ml-assets ops data-model
      sqlite3 .ml_assets/data_model.db 'SELECT * FROM model_versions'
    """
    from ml_assets.extras.api.data_model import DataModel

    model = DataModel.of(prepared_settings(), read_data_model())
    renewed = model.renew()
    print(f"{model.shown}: {', '.join(f'{count} {view}' for view, count in renewed.rows.items())}")
    for line in renewed.unread:
        _tell(line)
    if follow:
        model.keep_fresh(threading.Event(), _tell)
    return ERROR if renewed.unread else DONE


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
