"""What it costs to load the code location and to run a trivial asset: python benchmarks/start_up.py

Every run process pays the first. CPU seconds of fresh interpreters, best of five; one figure a
line: NAME VALUE AIM holds|short.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cost import cost
from figures import tell

EACH_IS = "made of the least CPU seconds of several processes: five of a command, three of the rest"
MEDIAN_OF = 5

RUNS = 5
HELP = "from ml_assets.cli.main import main; main(['--help'])"
LOAD = "from ml_assets.definitions import defs; defs()"
HEAVY = ("boto3", "torch", "mlflow", "pandas", "kubernetes", "polars", "numpy")
PIPELINES = 200
FEW, MANY = 4, 24
"""Sources of the two pipelines whose difference is the cost of a trivial asset."""

SPEC = """\
type: ml_assets.component.TrainingPipeline
attributes:
  schema: 1
  name: {name}
  description: One of many.
  owner: team:benchmark
  sources:
{sources}
  features:
    {{function: features.py:build, key: [id], decision_at: measured_at, numeric: [size]}}
  label: {{column: late, task: binary}}
  split: {{kind: random, validation: 0.2, holdout: 0.3}}
  model: {{family: mlp, width: 32, depth: 2}}
  training: {{epochs: 1, batch_size: 24, microbatches: 12, learning_rate: 0.01, evaluate_every: 20,
              patience: 5, strategy: replicate, processes: 1}}
  evaluation: {{block: row, baselines: [{{kind: constant}}]}}
  gates: [{{kind: bound, name: floor, metric: auc, at_least: 0.6}}]
"""
SOURCE = """\
    {name}:
      {{kind: files, path: table.csv, format: csv, partitioned: false, key: [id],
       contract: table.json,
       columns: {{id: int64, size: float64, measured_at: datetime, late: boolean}}}}
"""
CONTRACT = """{"name": "table", "expectations": [{"type": "expect_column_values_to_not_be_null",
 "kwargs": {"column": "id"}, "severity": "critical"}]}"""
FEATURES = "def build(tables, window):\n    return tables['table_0']\n"
TABLE = "id,size,measured_at,late\n1,0.5,2024-01-01T00:00:00Z,true\n"


def main() -> None:
    """Print each figure with its aim."""
    dagster = cpu_seconds("import dagster")
    tell(
        "definitions_to_dagster",
        cpu_seconds(LOAD) / dagster,
        1.25,
        why="Our modules, and the demo's graph, come on top of what `import dagster` loads.",
    )
    tell("help_to_python", cpu_seconds(HELP) / cpu_seconds("pass"), 8.0)
    tell("heavy_modules_loaded", heavy_modules_loaded(), 0)
    many = seconds_of_many_pipelines()
    tell("seconds_200_pipelines_to_dagster", many / dagster)
    tell(
        "seconds_200_pipelines",
        many,
        4.0,
        why="By a profile, half is Dagster's decorators, which make ten ops a pipeline and read the"
        " signature of each function.",
    )
    tell("seconds_trivial_asset", seconds_of_trivial_asset(), 0.1)


def cpu_seconds(code: str, settings: Mapping[str, str] | None = None, runs: int = RUNS) -> float:
    """The least CPU time of a fresh interpreter that runs the code."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return min(cost(command, settings or {}).cpu for _ in range(runs))


def heavy_modules_loaded() -> int:
    """How many modules that only a step needs are in a process that loaded the definitions."""
    code = f"import sys; {LOAD}; print(sum(name in sys.modules for name in {HEAVY}))"
    return int(cost([sys.executable, "-W", "ignore", "-c", code], {}).printed)


def seconds_of_many_pipelines() -> float:
    """The whole process that loads 200 generated pipelines beside the package's own."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(PIPELINES):
            plant(Path(folder), f"pipeline_{number}", sources=1)
        return cpu_seconds(LOAD, {"ML_ASSETS_PIPELINES": folder}, runs=3)


def seconds_of_trivial_asset() -> float:
    """What one more asset adds to a run in process: read one row, publish it, and write it down."""
    least = {count: min(_seconds_of_run(count) for _ in range(3)) for count in (FEW, MANY)}
    return (least[MANY] - least[FEW]) / (MANY - FEW)


def _seconds_of_run(sources: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "table.csv").write_text(TABLE)
        plant(root / "pipelines", "trivial", sources)
        settings = {
            "ML_ASSETS_HOME": str(root / "home"),
            "ML_ASSETS_SOURCES": folder,
            "ML_ASSETS_PIPELINES": str(root / "pipelines"),
        }
        run = "['run', 'trivial', '--through', 'raw_snapshot']"
        code = f"from ml_assets.cli.main import main; raise SystemExit(main({run}))"
        return cpu_seconds(code, settings, runs=1)


def plant(pipelines: Path, name: str, sources: int) -> None:
    """Write the folder of a small pipeline that reads one table under so many names."""
    folder = pipelines / name
    folder.mkdir(parents=True)
    listed = "".join(SOURCE.format(name=f"table_{number}") for number in range(sources))
    (folder / "defs.yaml").write_text(SPEC.format(name=name, sources=listed))
    (folder / "table.json").write_text(CONTRACT)
    (folder / "features.py").write_text(FEATURES)


if __name__ == "__main__":
    main()
