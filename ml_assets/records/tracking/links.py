"""Addresses that lead from one tool to the other two: Dagster, MLflow, the evaluation report."""

from dataclasses import dataclass

from ml_assets.settings import Settings

RUN_TAG = "dagster.run"
REPORT_TAG = "ml_assets.report"
EXPERIMENTS_PAGE = "experiments.html"
SEARCH_PAGE = "search.html"
NOTE_TAG = "mlflow.note.content"
"""MLflow shows this tag, in Markdown, as the description of a run."""


@dataclass(frozen=True)
class Links:
    """Says where each tool is opened, without a slash at the end."""

    dagster: str
    reports: str
    mlflow: str

    @classmethod
    def of(cls, settings: Settings) -> "Links":
        """Return where the settings say that each is opened."""
        return cls(settings.ui_url, settings.reports_url, settings.mlflow_url)

    def asset(self, key: str) -> str:
        """The page of an asset; its key's parts are joined by ``/``."""
        return f"{self.dagster}/assets/{key}"

    def lineage(self, key: str) -> str:
        """The graph of all that an asset is made from, on its page."""
        return f"{self.asset(key)}?view=lineage&lineageScope=upstream&lineageDepth=10"

    def run(self, run_id: str) -> str:
        """The page of a Dagster run."""
        return f"{self.dagster}/runs/{run_id}"

    def automation(self) -> str:
        """The page of the sensors and schedules, and of their ticks."""
        return f"{self.dagster}/automation"

    def report(self, pipeline: str, model: str) -> str:
        """The evaluation report of a model, which is named by its digest."""
        return f"{self.reports}/{pipeline}/{report_name(model)}"

    def experiments(self, pipeline: str) -> str:
        """The page that puts the last runs of a pipeline side by side."""
        return f"{self.reports}/{pipeline}/{EXPERIMENTS_PAGE}"

    def search(self, pipeline: str) -> str:
        """The page of a pipeline's last hyperparameter search."""
        return f"{self.reports}/{pipeline}/{SEARCH_PAGE}"

    def card(self, pipeline: str, table: str, partition: str | None) -> str:
        """The data card of a table, or of one partition of it."""
        return f"{self.reports}/{pipeline}/card/{table}/{partition or 'all'}"

    def tracking(self) -> str:
        """MLflow's list of experiments: its bare address opens on the pages for language models."""
        return f"{self.mlflow}/#/experiments?workflowType=machine_learning"

    def tracking_run(self, run_id: str) -> str:
        """The page of an MLflow run; MLflow finds its experiment."""
        return f"{self.mlflow}/#/runs/{run_id}"

    def registered_model(self, pipeline: str) -> str:
        """The page of a pipeline's versions and aliases in MLflow."""
        return f"{self.mlflow}/#/models/{pipeline}"


def report_name(model: str) -> str:
    """The file of a model's report."""
    return f"{model[:16]}.html"


def run_note(links: Links, pipeline: str, dagster_run: str, report: str | None) -> str:
    """The description of an MLflow run: where to go from there."""
    ways = [
        f"[Dagster run]({links.run(dagster_run)})",
        f"[lineage]({links.asset(f'{pipeline}/trained_model')})",
        f"[evaluation report]({report})" if report else "",
    ]
    return " · ".join(way for way in ways if way)
