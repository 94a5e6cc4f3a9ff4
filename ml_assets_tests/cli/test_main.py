"""The command line: its options are a frozen set, and its errors are for people."""

import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import click
import pytest

from ml_assets.cli.main import commands
from ml_assets_tests.cli.words import TOP, every_command
from ml_assets_tests.conftest import Cli
from ml_assets_tests.fresh import said_by
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

OPTIONS = {
    "demo": "[flight_delays|code_lm|digits] --plant",
    "new": "NAME --from --label --ahead --key --time --task --null --network --ci --timezone"
    " --dates --into",
    "check": "[PIPELINE] --deep --steps",
    "run": "PIPELINE --as-of --through --fresh --no-fresh --epochs --search --experiment"
    " --hypothesis --goal --dry-run --verbose",
    "status": "[PIPELINE] --json",
    "ui": "--port --host",
    "predict": "PIPELINE [FILE] --row --format --output",
    "serve": "PIPELINE --port --host --batch-rows --batch-wait --queue-rows --drain --follow",
    "data read": "KEY --partition --version --limit --format --output",
    "data card": "PIPELINE TABLE --partition --open",
    "data lookup": "PIPELINE COLUMN=VALUE... --json",
    "data drift": "PIPELINE --json",
    "data list": "[KEY] --at --last --json",
    "data diff": "STATE [STATE] --json",
    "data tag": "TAG --at --json",
    "data untag": "TAG",
    "data checkout": "STATE [KEY] --into --json",
    "data contract propose": "PIPELINE TABLE --partition --out --force",
    "data contract docs": "PIPELINE [TABLE] --partition --open",
    "data quarantine show": "PIPELINE [TABLE] --partition --json",
    "data quarantine release": "PIPELINE TABLE --partition --author --reason",
    "data recall": "[SNAPSHOT] --lift --author --reason --dry-run --json",
    "data land-week": "--weeks",
    "data generate": "FOLDER --weeks --start --seed --scale --drift --nulls --category --concept"
    " --label-delay --volume --duplicates --schema",
    "models experiments": "PIPELINE --last --open --json",
    "models compare": "PIPELINE [A] [B] --json",
    "models note": "PIPELINE RUN|MODEL --verdict --note --author",
    "models report": "PIPELINE --open",
    "models suspects": "PIPELINE --format --output",
    "models cost": "[PIPELINE] --by --json",
    "models search": "PIPELINE --open --json",
    "models tune-batch": "PIPELINE --batch --processes --threads --steps --largest --json",
    "models gpus": "PIPELINE --utilization --prices --json",
    "release history": "PIPELINE --json --check",
    "release was-serving": "PIPELINE --at --json",
    "release what-if": "PIPELINE --gate --bound --json",
    "release promote": "PIPELINE",
    "release rollback": "PIPELINE --to --author --reason --json",
    "release override": "PIPELINE --model --author --reason --json",
    "release verify": "[PIPELINE|FOLDER] --key --head --json",
    "release prove": "PIPELINE|RUN|MODEL [RUN|MODEL] --despite-code --from-snapshots --keep"
    " --study --verbose --json",
    "release export": "PIPELINE --to",
    "release render": "FOLDER --for --storage --crd --key --image --prometheus",
    "ops logs": "RUN --follow",
    "ops reliability": "[PIPELINE] --days --json",
    "ops alerts test": "",
    "ops alerts list": "",
    "ops render": "PIPELINE --verb --nodes --attempt --json",
    "ops drill": "PIPELINE",
    "ops api": "--port --host",
    "ops data-model": "--follow",
    "ops serve-reports": "--port",
    "ops gc": "--dry-run --json",
    "ops forget": "PIPELINE --author --reason --undo",
    "ops reset": "--yes",
    "ops completion": "{bash|zsh|fish}",
}


def test_the_options_are_the_documented_ones() -> None:
    found = {
        " ".join(path): " ".join(shown(command))
        for path, command in every_command()
        if not isinstance(command, click.Group)
    }
    assert found == OPTIONS


def shown(command: click.Command) -> Iterator[str]:
    """Arguments and options of a command as its help writes them, without --help."""
    context = click.Context(command)
    for one in command.params:
        match one:
            case click.Argument():
                yield one.make_metavar(context)
            case _:
                yield from (*one.opts, *one.secondary_opts)


def test_a_stranger_sees_at_most_twelve_entries(cli: Cli) -> None:
    said = cli("--help").out
    listed = re.findall(r"^  ([a-z][a-z-]+)  +[A-Z]", said, re.MULTILINE)
    assert listed == [
        *("demo", "new", "check", "run", "status", "ui", "predict", "serve"),
        *("data", "models", "release", "ops"),
    ]
    assert "3 refused by a gate" in said


def test_it_says_its_version(cli: Cli) -> None:
    assert cli("--version").out == f"ml-assets {version('ml_assets')}\n"


def test_the_help_of_a_group_names_each_of_its_commands(
    cli: Cli,
) -> None:
    for group in ("data", "models", "release", "ops"):
        said = cli(group, "--help").out
        within = {path.split()[1] for path in OPTIONS if path.startswith(f"{group} ")}
        assert set(re.findall(r"^  ([a-z-]+)  +[A-Z]", said, re.MULTILINE)) == within


def test_every_command_begins_its_help_with_one_sentence() -> None:
    for path, command in every_command():
        assert command.help, path
        first = inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ")
        assert re.fullmatch(r"[A-Z].{10,75}[.?]", first), (path, first)


def test_the_sentence_of_the_first_page_is_that_of_the_command() -> None:
    for name in commands.list_commands(TOP):
        command = commands.get_command(TOP, name)
        assert command is not None
        assert (command.help or "").startswith(commands.sentence(name))


def test_help_imports_no_command_and_nothing_heavy() -> None:
    heavy = ["dagster", "pydantic", "polars", "yaml", "sqlalchemy", "ml_assets.settings"]
    code = (
        "import sys; from ml_assets.cli.main import main; main(['--help']);"
        f"sys.exit([one for one in {heavy} if one in sys.modules] or"
        " [one for one in sys.modules if one.startswith('ml_assets.cli.') and one not in"
        " ('ml_assets.cli.main', 'ml_assets.cli.groups', 'ml_assets.cli.output')] or None)"
    )
    said_by(code)


@pytest.mark.parametrize("group", ["data", "models", "release", "ops", "run", "ui"])
def test_the_help_of_a_command_imports_nothing_heavy(group: str) -> None:
    code = (
        f"import sys; from ml_assets.cli.main import main; main([{group!r}, '--help']);"
        "sys.exit([one for one in ('dagster', 'pydantic', 'polars') if one in sys.modules] or None)"
    )
    said_by(code)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["run"], "Missing argument 'PIPELINE'"),
        (["run", "irises", "--throug", "x"], "Did you mean '--through'?"),
        (["run", "irises", "--through", "features"], "Did you mean 'feature_set'?"),
        (["rnu", "irises"], "Did you mean `ml-assets run`?"),
        (["statsu"], "Did you mean `ml-assets status`?"),
        (["data", "raed"], "Did you mean `ml-assets data read`?"),
        (["rollback", "irises"], "Did you mean `ml-assets release rollback`?"),
        (["verfy"], "Did you mean `ml-assets release verify`?"),
        (["data", "rollback"], "Did you mean `ml-assets release rollback`?"),
        (["irises"], "There is no command 'irises'. See: ml-assets --help"),
        (["models", "experiments", "irises", "--last", "x"], "'x' is not a number from 1 to 1000"),
        (["models", "tune-batch", "irises", "--batch", "24,0"], "'0' is not a number from 1 up"),
        (["models", "tune-batch", "irises", "--largest", "all"], "'all' is not a number from 1"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_2(typed: list[str], said: str, cli: Cli) -> None:
    told = cli(*typed, code=2)
    assert said in told.err
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize("typed", [[], ["data"], ["ops", "alerts"]])
def test_a_group_alone_shows_its_help_and_exits_2(typed: list[str], cli: Cli) -> None:
    assert cli(*typed, code=2).err.startswith(f"Usage: {' '.join(['ml-assets', *typed])} ")


ASKED_TO_END = """
import os, signal, sys
import click
from ml_assets.cli.main import commands, main

number = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
before = signal.getsignal(signal.SIGTERM)
commands.add_command(click.Command("asked", callback=lambda: os.kill(os.getpid(), number)))
code = main(["asked"])
assert signal.getsignal(signal.SIGTERM) == before
sys.exit(code)
"""


BY_ADA = ["--author", "ada", "--reason", "late"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["what-if", "--gate", "flor", "--bound", "0.7"], "has a gate 'flor'"),
        (["rollback", *BY_ADA], "nothing to roll back from"),
    ],
)
def test_what_is_not_there_is_no_refusal_by_a_gate(
    typed: list[str], said: str, tmp_path: Path
) -> None:
    command, *options = typed
    world = World(tmp_path).plant(irises)
    assert said in world.cli("release", command, "irises", *options, code=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_asks_for_the_end_is_answered_in_words(number: int) -> None:
    command = [sys.executable, "-c", ASKED_TO_END, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "interrupted: what was made is kept; run again to continue\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


def test_a_signal_that_comes_while_a_command_is_loaded_is_answered_in_words_too() -> None:
    loading = "import ml_assets.cli; raise {}"
    said = []
    for error in ("KeyboardInterrupt", "KeyError('x')"):
        command = [sys.executable, "-c", loading.format(error)]
        said.append(subprocess.run(command, capture_output=True, text=True, check=False).stderr)
    assert said[0] == "interrupted: what was made is kept; run again to continue\n"
    assert "Traceback" in said[1] and "KeyError: 'x'" in said[1]


def test_verdicts_and_choices_are_those_of_the_records() -> None:
    from ml_assets.actions.render import Verb
    from ml_assets.cli.models import VERDICTS
    from ml_assets.extras.cost.bill import By
    from ml_assets.records.experiments import HypothesisVerdict

    assert get_args(HypothesisVerdict) == VERDICTS
    assert get_args(By) == choices("models", "cost", "by")
    assert get_args(Verb) == choices("ops", "render", "verb")


def choices(group: str, name: str, option: str) -> tuple[str, ...]:
    command = dict(every_command())[group, name]
    (found,) = [one.type for one in command.params if one.name == option]
    assert isinstance(found, click.Choice)
    return tuple(found.choices)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_takes(shell: str, cli: Cli) -> None:
    script = cli("ops", "completion", shell).out
    assert f"_ML_ASSETS_COMPLETE={shell}_complete" in script
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=script, text=True, check=False)
        assert checked.returncode == 0


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ml-assets re", {"release"}),
        ("ml-assets data qu", {"quarantine"}),
        ("ml-assets release rollback --a", {"--author"}),
        ("ml-assets run ir", {"irises"}),
        ("ml-assets run irises --through raw", {"raw_snapshot"}),
    ],
)
def test_a_shell_is_offered_what_goes_on(home: Path, typed: str, offered: set[str]) -> None:
    irises.plant(home, home / "sources")
    asked = {
        **os.environ,
        "_ML_ASSETS_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "ml_assets.cli.main"],
        env=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == offered
