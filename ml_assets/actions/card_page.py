"""Writes data cards on demand, from the stored statistics of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ml_assets.errors import MlAssetsError, StorageError, counted, did_you_mean
from ml_assets.graph.data_card import card_of
from ml_assets.records.recalls import require_sound
from ml_assets.records.tracking.links import Links
from ml_assets.reports.card import Card, card_page
from ml_assets.settings import Settings
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address, read_records
from ml_assets.store.pipeline_context import Pipeline, PipelineState, open_pipeline
from ml_assets.store.table_statistics import (
    STATISTICS_FILE,
    Grouped,
    Labels,
    TableStatistics,
    merge_all,
)

TRAINING_SET, FEATURE_SET = "training_set", "feature_set"


def write_card(pipeline: Pipeline, table: str, partition: str | None) -> Path:
    """Write ``reports/<pipeline>/card-<table>-<partition>.html`` and return where it is.

    Raises:
        StorageError: there is no such table or partition; names what there is.
        Recalled: it was made from bad data.
    """
    page = page_of_card(pipeline, table, partition)
    name = f"card-{table}-{(partition or 'all').replace(':', '-')}.html"
    return pipeline.objects.write_bytes(page.encode(), "reports", pipeline.name, name)


def served_card(settings: Settings, pipeline: str, table: str, partition: str) -> str | None:
    """The page that the report server shows, made anew each time; None where there is none."""
    try:
        return page_of_card(
            open_pipeline(pipeline, settings), table, None if partition == "all" else partition
        )
    except MlAssetsError:
        return None


def page_of_card(pipeline: Pipeline, table: str, partition: str | None) -> str:
    """The card of a table: of one partition, or of all of them added up.

    Raises:
        StorageError: there is no such table or partition; names what there is.
        Recalled: it was made from bad data.
    """
    address = address_of_table(pipeline.spec, table)
    state = pipeline.now()
    records = _records(state, address, partition)
    known = _added_up(state, records)
    labelled = pipeline.spec if address.stage in (FEATURE_SET, TRAINING_SET) else None
    one = card_of(address.at(records[0].partition if len(records) == 1 else None), known, labelled)
    assert one is not None
    return card_page(_spanning(one, records), _ways(Links.of(pipeline.settings), address, records))


def address_of_table(spec: PipelineSpec, table: str) -> Address:
    """Return what people call a table: a source, a derived table, feature_set or training_set.

    Raises:
        StorageError: the pipeline has no such table.
    """
    if table in spec.sources:
        return Address(spec.name, "validated_table", table)
    if table in spec.tables:
        return Address(spec.name, "derived_table", table)
    if table in (FEATURE_SET, TRAINING_SET):
        return Address(spec.name, table)
    known = [*spec.sources, *spec.tables, FEATURE_SET, TRAINING_SET]
    raise StorageError(
        f"{spec.name} has no table {table!r}.{did_you_mean(table, known)}"
        f" It has {', '.join(known)}."
    )


def _records(state: PipelineState, address: Address, partition: str | None) -> list[StageRecord]:
    """The records of the partitions that are asked for, oldest first."""
    found = [
        record
        for record in read_records(state.store, state.commit, state.name, address.stage)
        if record.key == address.key
    ]
    if not found:
        raise StorageError(f"{address} is not made yet: run ml-assets run {state.name}")
    chosen = [record for record in found if partition in (None, record.partition)]
    if not chosen:
        keys = [record.partition or "all" for record in found]
        raise StorageError(
            f"{address} has no partition {partition!r}; it has {len(keys)}, {keys[0]} to"
            f" {keys[-1]}. Leave --partition out for all of them."
        )
    for record in chosen:
        require_sound(state.store, state.commit, record)
    return sorted(chosen, key=lambda record: record.partition or "")


def _statistics(state: PipelineState, record: StageRecord) -> TableStatistics:
    """Those that were published with a table."""
    file = Address.of(record.key, record.partition).file(STATISTICS_FILE)
    return TableStatistics.model_validate_json(state.read_bytes(file))


def _added_up(state: PipelineState, records: Sequence[StageRecord]) -> TableStatistics:
    """All of them added up, with the labels by partition beside those by group.

    Each is read when it is added: those of many partitions together would fill the memory.
    """
    told: list[Labels] = []

    def read() -> Iterator[TableStatistics]:
        for record in records:
            part = _statistics(state, record)
            if part.labels:
                told.append(part.labels.model_copy(update={"value": record.partition or "all"}))
            yield part

    whole = merge_all(read())
    if len(records) < 2 or whole.labels is None:
        return whole
    by_partition = Grouped(by="partition", groups=tuple(told))
    return whole.model_copy(update={"grouped": (by_partition, *whole.grouped)})


def _spanning(card: Card, records: Sequence[StageRecord]) -> Card:
    if len(records) == 1:
        return card
    first, last = records[0].partition, records[-1].partition
    return replace(card, span=f"{counted(len(records), 'partition')}, {first} to {last}")


def _ways(links: Links, address: Address, records: Sequence[StageRecord]) -> dict[str, str]:
    ways = {"In Dagster": links.asset(address.key)}
    if len(records) == 1:
        ways["Run"] = links.run(records[0].run)
    return ways
