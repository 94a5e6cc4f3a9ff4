"""ml-assets ops: monitoring, servers and the cluster, house-keeping, the settings."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ml_assets.cli import options
from ml_assets.cli.groups import CommandGroup, of_extra
from ml_assets.cli.housekeeping import forget, gc, reset
from ml_assets.cli.output import DONE, ERROR, aligned, tell
from ml_assets.cli.session import read_each, watching_settings, working_session
from ml_assets.cli.ui import serve_reports
from ml_assets.errors import counted
from ml_assets.settings import read_cluster, read_settings

if TYPE_CHECKING:
    from ml_assets.actions.reliability import Reliability
    from ml_assets.actions.render import Verb

_POLL_SECONDS = 0.5
_TEST_SECONDS = 20.0
_SHELLS = ("bash", "zsh", "fish")


@click.command
@click.argument("run")
@click.option("--follow", is_flag=True, help="Keep printing until the run ends.")
def logs(run: str, follow: bool) -> int:
    """Print the whole log of a run.

    RUN is its id, the unique beginning of one, or latest. The log has the events and messages of
    the Dagster run, the output of its steps, and the output of every rank of the training program,
    in the order of time (UTC). Exit code 1: the run failed.

    \b
      ml-assets ops logs latest --follow
    """
    settings = watching_settings()
    from ml_assets.adapters.run_log import LATEST, RunLog, find_run, run_before
    from ml_assets.adapters.runs import name_of, open_instance

    with open_instance() as instance:
        found = find_run(instance, run)
        earlier = run_before(instance, found) if run == LATEST else None
        if earlier:  # one command may make several runs
            print(f"before this one came {name_of(earlier)}", file=sys.stderr)
        log = RunLog(instance, found.run_id, settings.cache / "sessions")
        while True:
            ended = log.has_ended  # asked first: what was said before the end is then read
            for line in log.new():
                tell(f"{line.time:%H:%M:%S.%f}"[:-3] + f" {line.origin:28} {line.text}")
            if ended or not follow:
                break
            time.sleep(_POLL_SECONDS)
        status, failed = log.run.status, log.has_failed
    print(f"run {found.run_id}: {status.value}")
    return ERROR if failed else DONE


@click.command
@options.any_pipeline
@click.option(
    "--days",
    type=options.Whole(1, 3650),
    default=30,
    metavar="N",
    show_default=True,
    help="The number of days to look back.",
)
@options.as_json
def reliability(pipeline: str | None, days: int, as_json: bool) -> int:
    """Count the automatic runs, and how many of them ended well.

    Counts the runs that schedules and sensors asked for, of one pipeline or of all, and says why
    the others did not end well. A success ends well, and so does a model that a gate refused. A
    failure does not, nor does a missed tick. Several attempts at the same thing count once.
    """
    settings = watching_settings()
    from ml_assets.actions.reliability import reliability
    from ml_assets.adapters.runs import open_instance
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders

    known = pipeline_folders(settings)
    if pipeline:
        specs, code = [load_spec(find_pipeline(known, pipeline))], DONE
    else:
        specs, code = read_each([*known], lambda name: load_spec(known[name]))
    now = datetime.now(UTC)
    since = now - timedelta(days=days)
    with open_instance() as instance:
        found = [reliability(spec, instance, since, now) for spec in specs]
    if as_json:
        print(json.dumps([_reliability_document(one) for one in found], indent=2))
        return code
    for one in found:
        _tell_reliability(one, days)
    return code


def _tell_reliability(found: "Reliability", days: int) -> None:
    if found.share is None:
        last = f"in the last {counted(days, 'day')}"
        waiting = f"; {found.under_way} under way" if found.under_way else ""
        what = "no automatic run has ended" if waiting else "nothing has run automatically"
        print(f"{found.pipeline}: {what} {last}{waiting}")
        return
    print(
        f"{found.pipeline}: {found.well} of {len(found.work)} ended well ({found.share:.1%}) in the"
        f" last {counted(days, 'day')}; {found.under_way} under way"
    )
    refused = sum(1 for work in found.work if work.end == "refused")
    if refused:
        print(f"  {refused} of them refused by a gate, which is a good end")
    for cause, count in found.causes:
        print(f"  {count} x {cause}")
    rows = [
        (f"{work.time:%Y-%m-%d %H:%M}", work.end, (work.runs or ("",))[-1][:8], work.what)
        for work in found.work
        if work.end in ("failed", "missed")
    ]
    for line in aligned(rows):
        print(f"    {line}")


def _reliability_document(found: "Reliability") -> dict[str, Any]:
    return {
        **found.model_dump(mode="json"),
        "scheduled": len(found.work),
        "well": found.well,
        "share": found.share,
        "causes": dict(found.causes),
    }


@click.command("test")
def alerts_test() -> int:
    """Send a test to each address of ML_ASSETS_ALERTS.

    Exit code 1: one of them did not accept it.
    """
    from ml_assets.automation.alerts.delivery import deliver
    from ml_assets.automation.alerts.media import recipients
    from ml_assets.automation.alerts.message import Cause, Message
    from ml_assets.errors import SettingsError

    settings = read_settings()
    to = recipients(settings.alerts, settings.webhook_secret)
    if not to:
        raise SettingsError(
            "ML_ASSETS_ALERTS is not set, so no one is notified when something goes wrong."
            " Set it to the address of a webhook, or of mail, Slack and more by apprise; see"
            " docs/operate.md, Alerts."
        )
    said = "This is a test: alerts of ml-assets reach you."
    cause = Cause("test", "test", "ml-assets", said, settings.ui_url)
    message = Message((cause,), datetime.now(UTC))
    failed = 0
    for recipient in to:
        reason = deliver(recipient, message, _TEST_SECONDS)
        failed += reason is not None
        print(f"{recipient.shown}: {'accepted' if reason is None else f'FAILED, {reason}'}")
    return ERROR if failed else DONE


@click.command("list")
def alerts_list() -> None:
    """List open problems, since when, and who was notified.

    Shows what the sensor `alerts` saw at its last tick, and when that was. A problem that is over
    leaves the list at the next tick.
    """
    settings = watching_settings()
    from ml_assets.adapters.runs import open_instance
    from ml_assets.automation.alerts.media import recipients
    from ml_assets.automation.alerts.reported import read_told
    from ml_assets.automation.alerts.sensor import last_tick

    known = {recipient.id: recipient.shown for recipient in recipients(settings.alerts)}
    with open_instance() as instance:
        record, tick = read_told(instance.daemon_cursor_storage), last_tick(instance)
    for cause in record.open.values():
        told = ", ".join(known.get(one, "an earlier address") for one in cause.told) or "nobody"
        print(
            f"{cause.since:%Y-%m-%d %H:%M} UTC  {' '.join(cause.what.split())}  (notified: {told})"
        )
    if tick is None:
        unset = "" if settings.alerts else ", and has an address: set ML_ASSETS_ALERTS"
        print(f"the sensor `alerts` has no tick yet: it ticks while ml-assets ui runs{unset}")
    elif record.open:
        print(f"seen at the sensor's tick, {tick:%Y-%m-%d %H:%M} UTC; the next drops what is gone")
    else:
        print(f"nothing was wrong at the sensor's last tick, {tick:%Y-%m-%d %H:%M} UTC")


alerts = CommandGroup("alerts", help="Send a test alert, or list open problems.")
alerts.subject("Commands", alerts_test, alerts_list)


@click.command
@options.pipeline
def drill(pipeline: str) -> int:
    """Kill a short training, and check that it ends in the same weights.

    Trains the newest training set for a few steps, twice. One process of the second training is
    killed at a random step. Both trainings have to end in the same weights, bit for bit; exit code
    1 if they do not. The outcome is the check resume_drill on checkpoints, which a spec declares
    with automation.resume_drill: {every: week, at: sunday 05:00}. The drill's trainings are
    deleted; sessions and models of the pipeline are not touched.
    """
    with working_session(f"drill {pipeline}", pipeline) as session:
        from ml_assets.adapters.execute import execute
        from ml_assets.adapters.runs import Selection
        from ml_assets.automation.resume_drill import drilled, require_drill
        from ml_assets.store.pipeline_context import open_pipeline

        check = require_drill(open_pipeline(pipeline, session.settings))
        selection = Selection(checks=(check,))
        run = execute(session.defs, session.instance, pipeline, selection, tell)
        return DONE if drilled(session.instance, run) else ERROR


@click.command
@options.pipeline
@click.option(
    "--verb",
    type=click.Choice(["train", "score", "sanity"]),
    default="train",
    show_default=True,
    help="The Job's task.",
)
@click.option(
    "--nodes", type=int, metavar="N", help="Show a training that continues with fewer nodes."
)
@click.option(
    "--attempt",
    type=int,
    default=1,
    metavar="N",
    show_default=True,
    help="The number of the attempt.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON List instead of YAML documents."
)
def render(pipeline: str, verb: "Verb", nodes: int | None, attempt: int, as_json: bool) -> None:
    """Print the Kubernetes Job of a training.

    Prints the Job and its Service as YAML, as the Kubernetes launcher would create them. Nothing is
    created, and no cluster is contacted. The digest in the names is a placeholder for that of the
    data. To try it on a cluster:

    \b
      ml-assets ops render PIPELINE | kubectl apply --dry-run=server -f -
    """
    from ml_assets.actions.render import as_list, as_yaml, job_order, rendered
    from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders

    folder = find_pipeline(pipeline_folders(read_settings()), pipeline)
    spec, cluster = load_spec(folder), read_cluster()
    said, made = rendered(job_order(spec, cluster, verb, nodes, attempt), cluster)
    if as_json:
        print(json.dumps(as_list(made), indent=2))
    else:
        print(f"# {said}")
        print(as_yaml(made), end="")


@click.command
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that lets a shell complete commands and pipelines.

    \b
      bash  eval "$(ml-assets ops completion bash)"            in ~/.bashrc
      zsh   eval "$(ml-assets ops completion zsh)"             in ~/.zshrc
      fish  ml-assets ops completion fish | source             in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    top = context.find_root()
    assert top.info_name is not None
    print(script(top.command, {}, top.info_name, "_ML_ASSETS_COMPLETE").source())


_SETTINGS = """
\b
environment:
  ML_ASSETS_HOME       state folder (default .ml_assets)
  ML_ASSETS_SOURCES    root of relative source paths (default: the demo's outside world)
  ML_ASSETS_SQL_<NAME> SQLAlchemy URL of the SQL connection <NAME>
  ML_ASSETS_PIPELINES  folders that hold pipelines, separated like PATH (default: demo)
  ML_ASSETS_UI_URL, ML_ASSETS_REPORTS_URL, ML_ASSETS_MLFLOW_URL
                       where links lead to (default: what `ml-assets ui` serves)
  ML_ASSETS_UI_HOSTS   further host names at which the Dagster UI answers
  ML_ASSETS_SNAPSHOTS  folder or lakefs://repository[/branch] of tables, records and the ledger
  LAKEFS_ENDPOINT, LAKEFS_ACCESS_KEY_ID, LAKEFS_SECRET_ACCESS_KEY, LAKEFS_S3_ENDPOINT
                       the lakeFS server, and the keys to it
  ML_ASSETS_CHECKPOINTS  folder or s3://bucket/prefix of checkpoints (default: the state folder)
  ML_ASSETS_ONLINE     file or redis:// URL of the online store (default: in the state folder)
  ML_ASSETS_STUDIES    folder or SQLAlchemy URL for the trials of searches (default: state folder)
  ML_ASSETS_RETENTION  how long unused things are kept, e.g. "checkpoints=2d history=8w" (see gc)
  ML_ASSETS_SIGNING_KEY, ML_ASSETS_TRUSTED_KEYS
                       the key that signs all writes, and further trusted keys (default: none)
  ML_ASSETS_STORE      a name signed with each state: stores of other names are not read
  ML_ASSETS_ALERTS     recipients of alerts: URLs of webhooks, Slack, mail servers (see alerts)
  ML_ASSETS_EVENTS     URLs of webhooks that are called when a release moves
  ML_ASSETS_WEBHOOK_SECRET
                       the secret that signs messages to webhooks (default: none are signed)
  ML_ASSETS_REGISTER_FROM
                       where to accept models that were made elsewhere (default: nowhere)
  ML_ASSETS_SERVE_TOKENS, ML_ASSETS_API_READERS, ML_ASSETS_API_OPERATORS
                       tokens for `serve` (default: this machine only) and `ops api` (default: none)
  ML_ASSETS_DATA_MODEL SQLAlchemy URL of the SQL views (default: a file in the state folder)
  ML_ASSETS_LAUNCHER   local or kubernetes; for a cluster also (see docs/operate.md)
  ML_ASSETS_OBJECTS, ML_ASSETS_TRAINING_IMAGE, ML_ASSETS_NAMESPACE, ML_ASSETS_TRAINING_SECRET,
  ML_ASSETS_PULL_SECRET, ML_ASSETS_SPOT_SELECTOR, ML_ASSETS_SPOT_TOLERATION
  ML_ASSETS_PRICES     prices of a GPU-hour, and more: "spot=1.10,on-demand=3.75,node=0.40"
  ML_ASSETS_CAPACITY   how machines other than spot are bought: on-demand or reserved
  MLFLOW_TRACKING_URI  MLflow server (default: a database in the state folder)
"""

ops = CommandGroup(
    "ops",
    help="Operate: logs, alerts, servers, house-keeping, settings.",
    epilog=_SETTINGS,
)
ops.subject("Monitoring", logs, reliability, alerts)
ops.subject("Machines", render, drill)
ops.subject(
    "Servers",
    of_extra("ops api", "Serve the REST API: runs, experiments, models."),
    of_extra(
        "ops data-model",
        "Update the SQL views: pipelines, experiments, runs, model_versions.",
    ),
    serve_reports,
)
ops.subject("House-keeping", gc, forget, reset)
ops.subject("Command line", completion)
