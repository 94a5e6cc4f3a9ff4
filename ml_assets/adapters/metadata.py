"""Builds the metadata of asset pages: row counts, schemas, previews, links."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ml_assets.graph.publish import Published
from ml_assets.records.tracking.links import Links
from ml_assets.reports.picture import Picture
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import Lost
from ml_assets.store.layout import Address, recent_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import SnapshotStore

if TYPE_CHECKING:
    from ml_assets.reports.card import Card
    from ml_assets.reports.picture import Table

SHOWN = 12
"""Characters of a digest on a page; the command line takes as many."""
Draw = Callable[[Sequence[StageRecord]], Sequence[Picture]]
"""The pictures of a data stage, from the records of its partitions, oldest first."""
Glance = Callable[[Sequence[StageRecord]], str]
"""The most telling one of them, so small that the asset page shows it by itself."""


def record_metadata(published: Published) -> dict[str, Any]:
    """Rows, inputs and version of a record, for every asset: what else a page has comes first."""
    record = published.record
    rows = {} if record.rows is None else {"dagster/row_count": record.rows}
    return {
        **rows,
        "inputs": dg.MetadataValue.table(
            records=[
                dg.TableRecord(
                    {"key": i.key, "partition": i.partition or "", "version": i.version[:16]}
                )
                for i in record.inputs[:200]
            ],
            schema=_INPUT_SCHEMA,
        ),
        "snapshot": published.commit[:SHOWN],
        "run_key": record.run_key[:SHOWN],
    }


def table_metadata(store: SnapshotStore, published: Published, address: Address) -> dict[str, Any]:
    """Rows, schema and a preview of a stage's table, beside its version."""
    page = table_page(store, published, address)
    return {**page, **partition_metadata(store, published, address)}


def partition_metadata(
    store: SnapshotStore, published: Published, address: Address
) -> dict[str, Any]:
    """The version of a partition, its rows, and where it lies."""
    where = store.uri(published.commit, address.table)
    return {"dagster/uri": where, **record_metadata(published)}


def table_page(
    store: SnapshotStore, published: Published, address: Address, card: "Card | None" = None
) -> dict[str, Any]:
    """Return what the newest partition of a step shows: schema, a preview, the data card.

    All of a year's partitions with it would be most of what Dagster keeps of a run.
    """
    from ml_assets.store.table_files import column_schema, preview_markdown

    frame = store.scan(published.commit, address.table)
    columns = [dg.TableColumn(name, dtype) for name, dtype in column_schema(frame).items()]
    return {
        "dagster/column_schema": dg.TableSchema(columns),
        "preview": dg.MetadataValue.md(preview_markdown(frame, rows=5)),
        **data_card(card),
    }


def recovery_metadata(attempts: int, lost: Sequence[Lost], asked: World) -> dict[str, Any]:
    """Return what it took to get there: attempts, what ended the others, and what the last one ran
    on.

    Args:
        asked: where the first attempt ran.
    """
    from ml_assets.reports.tables import lost_attempts

    world = lost[-1].goes_on if lost else asked
    ran = {"attempts": attempts, "nodes": world.nodes, "processes": world.processes}
    if not lost:
        return ran
    told = lost_attempts(lost)
    ended = dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(told.head, row, strict=True))) for row in told.rows[:200]],
        schema=dg.TableSchema([dg.TableColumn(name) for name in told.head]),
    )
    return {**ran, "causes": ", ".join(one.cause for one in lost), "lost_attempts": ended}


def tracking_link(pipeline: Pipeline, mlflow_run: str | None) -> dict[str, Any]:
    """The MLflow run of a model; nothing where the server was not reachable."""
    if mlflow_run is None:
        return {}
    there = Links.of(pipeline.settings).tracking_run(mlflow_run)
    return {"mlflow_run": dg.MetadataValue.url(there)}


def report_link(pipeline: Pipeline, model: str) -> dict[str, Any]:
    """The evaluation report of a model, served by `ml-assets ui`: a browser opens no path."""
    there = Links.of(pipeline.settings).report(pipeline.name, model)
    return {"report": dg.MetadataValue.url(there)}


def model_links(pipeline: Pipeline, model: StageRecord) -> dict[str, Any]:
    """Links to a trained model's report and to its MLflow run."""
    tracked = tracking_link(pipeline, model.attributes["mlflow_run"])
    return {**report_link(pipeline, model.data_version), **tracked}


def markdown(text: str) -> dg.MetadataValue[Any]:
    """Text that an asset page renders."""
    return dg.MetadataValue.md(text)


def address(url: str) -> dg.MetadataValue[Any]:
    """A link on an asset page."""
    return dg.MetadataValue.url(url)


def place(path: str) -> dg.MetadataValue[Any]:
    """Return where something lies on this machine or in a store."""
    return dg.MetadataValue.path(path)


def pictures(shown: "Sequence[Picture | Table]") -> dict[str, Any]:
    """Pictures and tables under one button of an asset page; nothing where there are none."""
    from ml_assets.reports.picture import album

    return {"pictures": dg.MetadataValue.md(album(shown))} if shown else {}


def glance(picture: str) -> dict[str, Any]:
    """The most telling picture, on the asset page itself; nothing where there is none."""
    return {"at_a_glance": dg.MetadataValue.md(picture)} if picture else {}


def data_card(card: "Card | None") -> dict[str, Any]:
    """The data card under one button of an asset page; nothing where there is none."""
    from ml_assets.reports.card import card_pictures
    from ml_assets.reports.picture import album

    return {"data_card": dg.MetadataValue.md(album(card_pictures(card)))} if card else {}


def card_link(pipeline: Pipeline, address: Address) -> dict[str, Any]:
    """The whole card, served by `ml-assets ui`."""
    table = address.source or address.stage
    there = Links.of(pipeline.settings).card(pipeline.name, table, address.partition)
    return {"card": dg.MetadataValue.url(there)}


def history(store: SnapshotStore, address: Address, draw: Draw, small: Glance) -> dict[str, Any]:
    """The pictures of a data stage over its partitions so far, from their records alone."""
    records = recent_records(store, store.resolve("main"), address)
    return {**glance(small(records)), **pictures(draw(records))}


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that the UI can plot over time, and words beside them; missing values are left out.

    A number has six significant digits: the UI prints all that it is given. Records and reports
    have the whole of it.
    """
    return {name: _readable(value) for name, value in values.items() if value is not None}


def _readable(value: object) -> object:
    if not isinstance(value, float) or not value or not math.isfinite(value):
        return value
    return round(value, max(0, 5 - math.floor(math.log10(abs(value)))))


_INPUT_SCHEMA = dg.TableSchema(
    [dg.TableColumn("key"), dg.TableColumn("partition"), dg.TableColumn("version")]
)


def carded_partition(pipeline: Pipeline, published: Published, address: Address) -> dict[str, Any]:
    """``partition_metadata``, with a link to the partition's data card."""
    shown = partition_metadata(pipeline.store, published, address)
    return {**card_link(pipeline, address), **shown}
