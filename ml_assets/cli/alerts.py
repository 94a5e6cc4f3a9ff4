"""ml-assets alerts: send a test, or list what is wrong and who was told."""

import argparse
from datetime import UTC, datetime

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.cli.session import prepared_settings
from ml_assets.errors import SettingsError
from ml_assets.settings import Settings, read_settings

_TEST_SECONDS = 20.0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "alerts",
        help="send a test alert, or list what is wrong and who was told",
        description="`alerts test` sends one message to each address of ML_ASSETS_ALERTS; exit code"
        " 1 if one did not take it. `alerts list` tells what is wrong, since when, and how many"
        " were told, as the sensor `alerts` last saw it.",
    )
    parser.add_argument("what", choices=("test", "list"))
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    return _list() if arguments.what == "list" else _test(read_settings())


def _test(settings: Settings) -> int:
    from ml_assets.automation.alerts.delivery import deliver
    from ml_assets.automation.alerts.message import Cause, Message
    from ml_assets.automation.alerts.recipients import recipients

    to = recipients(settings.alerts)
    if not to:
        raise SettingsError(
            "ML_ASSETS_ALERTS is not set: nobody is told of anything. Set it to the address of a"
            " webhook, of Slack or of a mail server; see docs/operate.md, Alerts."
        )
    said = "This is a test: alerts of ml-assets reach you."
    message = Message((Cause("test", "test", "ml-assets", said, settings.ui_url),), _now())
    failed = 0
    for recipient in to:
        reason = deliver(recipient, message, _TEST_SECONDS)
        failed += reason is not None
        print(f"{recipient.shown}: {'taken' if reason is None else f'FAILED, {reason}'}")
    return ERROR if failed else DONE


def _list() -> int:
    settings = prepared_settings()
    import dagster as dg

    from ml_assets.automation.alerts.recipients import recipients
    from ml_assets.automation.alerts.reported import read_told

    known = {recipient.id: recipient.shown for recipient in recipients(settings.alerts)}
    with dg.DagsterInstance.get() as instance:
        record = read_told(instance.daemon_cursor_storage)
    for cause in record.open.values():
        told = ", ".join(known.get(one, "an address of before") for one in cause.told) or "nobody"
        print(f"{cause.since:%Y-%m-%d %H:%M} UTC  {' '.join(cause.what.split())}  (told {told})")
    if not record.open:
        print("nothing is wrong, as far as the sensor has looked")
    return DONE


def _now() -> datetime:
    return datetime.now(UTC)
