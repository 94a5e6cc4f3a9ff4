"""The command line: its options are a frozen set, and its errors are for people."""

import inspect
import json
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
import dagster as dg
import pytest

from ml_assets.automation.broken_pipeline import ASSET
from ml_assets.cli.main import commands, main
from ml_assets.definitions import build
from ml_assets.settings import read_settings
from ml_assets_tests.cli.words import TOP, every_command
from ml_assets_tests.worlds import irises

OPTIONS = {
    "demo": "[flight_delays|code_lm|digits] --plant",
    "new": "NAME --from --label --ahead --key --time --task --null --network --ci --timezone"
    " --dates --into",
    "check": "[PIPELINE] --deep --steps",
    "run": "PIPELINE --as-of --through --fresh --no-fresh --epochs --search --experiment"
    " --hypothesis --goal --dry-run --verbose",
    "status": "PIPELINE --json",
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return tmp_path


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


def test_a_stranger_sees_at_most_twelve_entries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z][a-z-]+)  +[A-Z]", said, re.MULTILINE)
    assert listed == [
        *("demo", "new", "check", "run", "status", "ui", "predict", "serve"),
        *("data", "models", "release", "ops"),
    ]
    assert "3 refused by a gate" in said


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ml-assets {version('ml_assets')}\n"


def test_the_help_of_a_group_names_each_of_its_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for group in ("data", "models", "release", "ops"):
        assert main([group, "--help"]) == 0
        said = capsys.readouterr().out
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("group", ["data", "models", "release", "ops", "run", "ui"])
def test_the_help_of_a_command_imports_nothing_heavy(group: str) -> None:
    code = (
        f"import sys; from ml_assets.cli.main import main; main([{group!r}, '--help']);"
        "sys.exit([one for one in ('dagster', 'pydantic', 'polars') if one in sys.modules] or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
def test_wrong_usage_is_one_line_and_exits_2(
    typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize("typed", [[], ["data"], ["ops", "alerts"]])
def test_a_group_alone_shows_its_help_and_exits_2(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert capsys.readouterr().err.startswith(f"Usage: {' '.join(['ml-assets', *typed])} ")


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
def test_completion_prints_what_the_shell_takes(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ops", "completion", shell]) == 0
    script = capsys.readouterr().out
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


def test_an_unknown_pipeline_names_the_known_ones(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["status", "tulips"]) == 1
    said = capsys.readouterr().err
    assert "'tulips'" in said
    assert "irises" in said


def test_one_mistake_is_not_mistakes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("epochs: 30", "epochs: many"))
    assert main(["check", "irises"]) == 1
    assert "irises: 1 mistake\n" in capsys.readouterr().out
    assert main(["run", "irises"]) == 1
    assert "1 mistake in " in capsys.readouterr().err


def test_check_finds_a_missing_contract_and_a_missing_function(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    (home / "irises" / "flowers.json").unlink()
    (home / "irises" / "features.py").write_text("")
    assert main(["check", "irises"]) == 1
    said = capsys.readouterr().out
    assert "sources.flowers.contract" in said
    assert "features.function" in said


def test_check_refuses_a_spot_spec_whose_saves_do_not_fit_the_notice_with_the_arithmetic(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    spec = home / "irises" / "defs.yaml"
    spot = "spot: {notice_seconds: 20, write_mb_per_second: 0.001}\n    checkpoint_every: 10"
    spec.write_text(spec.read_text().replace("epochs: 30", f"epochs: 30\n    {spot}"))
    assert main(["check", "irises"]) == 1
    said = capsys.readouterr().out
    assert "parameters x 3 numbers x 4 bytes (adamw" in said
    assert "but the notice is 20 s" in said
    spec.write_text(
        spec.read_text().replace("write_mb_per_second: 0.001", "write_mb_per_second: 9")
    )
    assert main(["check", "irises"]) == 0


def test_check_warns_of_a_package_that_is_missing_here(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    irises.plant(home, home / "sources")
    network = irises.SPEC[irises.SPEC.index("  model:") : irises.SPEC.index("  evaluation:")]
    trees = irises.SPEC.replace(network, "  model: {family: lightgbm}\n")
    (home / "irises" / "defs.yaml").write_text(trees)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert main(["check", "irises"]) == 0
    said = capsys.readouterr().out
    assert "irises: good" in said
    assert "warning: model.family is 'lightgbm'" in said
    assert "remedy: pip install -c requirements.lock -e '.[boosting]'" in said


def test_check_warns_of_sources_that_are_not_on_this_machine(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    irises.plant(home, home / "sources")
    assert main(["check", "irises"]) == 0
    assert "warning: sources" not in capsys.readouterr().out
    spec, file = home / "irises" / "defs.yaml", home / "sources" / "irises.csv"
    file.rename(file.with_name("iris.csv"))
    assert main(["check", "irises"]) == 0
    said = capsys.readouterr().out
    assert f"sources.flowers.path is 'irises.csv', and there is no {file} here" in said
    assert f"it begins below ML_ASSETS_SOURCES, which is {home / 'sources'}" in said
    delta = "kind: delta\n      path: lake/irises\n"
    spec.write_text(re.sub(r"kind: files\n.*path: .*\n.*format: .*\n", delta, spec.read_text()))
    assert main(["check", "irises"]) == 0
    log = home / "sources" / "lake" / "irises" / "_delta_log"
    assert f"sources.flowers.path is 'lake/irises', and there is no {log} here" in (
        capsys.readouterr().out
    )
    log.mkdir(parents=True)
    assert main(["check", "irises"]) == 0
    assert "warning: sources" not in capsys.readouterr().out
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(home / "elsewhere"))
    assert main(["check", "irises"]) == 0
    assert f"ML_ASSETS_SOURCES is {home / 'elsewhere'}, and there is no such folder here" in (
        capsys.readouterr().out
    )


def test_status_before_anything_is_made_says_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["status", "irises"]) == 0
    said = capsys.readouterr().out
    assert "ml-assets run irises" in said
    assert "nothing is released yet" in said
    assert str(home / "state") in said
    assert main(["status", "irises", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"] == []
    assert not (home / "state").exists(), "a question makes no folder"


def test_a_report_before_there_is_one_says_what_to_make(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    assert main(["models", "report", "irises"]) == 1
    assert "was never materialized" in capsys.readouterr().err


def test_reset_asks_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    irises.plant(home, home / "sources")
    assert main(["run", "irises", "--through", "raw_snapshot"]) == 0
    assert main(["ops", "reset"]) == 1
    assert (home / "state").exists()
    (own := home / "state" / "own.txt").write_text("mine")
    assert main(["ops", "reset", "--yes"]) == 0
    assert [*(home / "state").iterdir()] == [own]
    assert f"left as it is: {own}" in capsys.readouterr().out


def test_a_column_that_the_spec_does_not_name_is_left_out_aloud(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    irises.plant(home, home / "sources")
    function = home / "irises" / "features.py"
    wide = 'tables["flowers"].with_columns(area=pl.col("petal_length") * pl.col("petal_width"))'
    spec = home / "irises" / "defs.yaml"
    spec.write_text(irises.SPEC.replace("sepal_width, petal_length,", "petal_length,"))
    function.write_text(function.read_text().replace('tables["flowers"]', wide))
    assert main(["run", "irises", "--through", "feature_set"]) == 0
    said = capsys.readouterr().out
    line = "`area` is returned by features.py:build, but not named in features.numeric"
    assert said.count(line) == 1
    assert said.count("returned by") == 1, "a column of the source is passed through, not made"


BROKEN = {
    "no_yaml": "type: [\nattributes: }",
    "a_wrong_key": irises.SPEC.replace("batch_size", "batch_sise"),
}


@pytest.fixture
def beside_broken_ones(home: Path) -> None:
    irises.plant(home, home / "sources")
    for name, text in BROKEN.items():
        (home / name).mkdir()
        (home / name / "defs.yaml").write_text(text)


@pytest.mark.usefixtures("beside_broken_ones")
def test_a_broken_pipeline_is_in_the_way_of_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "irises", "--through", "raw_snapshot"]) == 0
    assert "irises/raw_snapshot/raw_flowers" in capsys.readouterr().out


@pytest.mark.usefixtures("beside_broken_ones")
def test_a_broken_pipeline_is_told_by_its_name_line_and_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded = build(read_settings()).get_repository_def()  # what Dagster loads for the UI
    for name in BROKEN:
        assert main(["run", name]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"error: {name}: 1 mistake in ")
        assert "defs.yaml:" in said
        assert "remedy: " in said
        asset = loaded.asset_graph.get(dg.AssetKey([name, ASSET]))
        assert f"{name}: 1 mistake in " in str(asset.description)
        assert "defs.yaml:" in str(asset.description)
    assert loaded.asset_graph.has(dg.AssetKey(["irises", "released_model"]))
