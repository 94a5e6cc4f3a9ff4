"""Proposes a table's first contract from its data, and writes pages of a contract."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.proposal import propose
from ml_assets.assets.validated_table.contract.suite import contract_of, read_contract
from ml_assets.errors import ContractError, SettingsError, SpecError, StorageError
from ml_assets.records.recalls import require_sound
from ml_assets.spec.partitions import windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.disk import scratch_in
from ml_assets.store.layout import Address, published_partitions, read_record
from ml_assets.store.objects import write_whole
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN

_LOOKED_AT = 12
"""Partitions of a source that was never read."""


def source_of(spec: PipelineSpec, table: str) -> SourceSpec:
    """The source of a table by its name.

    Raises:
        SpecError: there is none.
    """
    if table not in spec.sources:
        known = ", ".join(spec.sources)
        raise SpecError(
            f"{spec.name} has no source {table!r} to propose a contract for; it has {known}"
        )
    return spec.sources[table]


def propose_contract(pipeline: Pipeline, table: str, partition: str | None) -> dict[str, Any]:
    """A suite that the table's snapshots meet: all partitions, or the one that is named.

    Where none was read yet, what the source holds now is looked at; nothing is written.

    Raises:
        StorageError: there is no such snapshot, or nothing at the source.
        SourceError: the source cannot be read as it is declared.
    """
    spec, store = pipeline.spec, pipeline.store
    source = source_of(spec, table)
    whole, commit = Address(spec.name, "raw_snapshot", table), store.resolve(MAIN)
    was_read = published_partitions(store, commit, whole) or read_record(store, commit, whole)
    snapshots = (
        raw_tables(pipeline, table, partition)
        if was_read
        else _as_it_lies(pipeline, table, partition)
    )
    label = spec.label.of or spec.label.column
    suite = propose(
        table,
        list(snapshots.values()),
        source.key,
        label if label in source.columns else None,
        is_measured=spec.label.ahead is not None,
    )
    contract = read_contract(suite, "the proposal")
    for key, frame in snapshots.items():
        failed = [result.reason for result in audit(frame, contract).results if not result.passed]
        if failed:
            raise ContractError(
                f"The contract proposed for {table} is not met by its partition {key or 'all'}:"
                f" {failed[0]}. Nothing was written; this is a fault of ml_assets: please report"
                " it."
            )
    return suite


def _as_it_lies(
    pipeline: Pipeline, table: str, partition: str | None
) -> Mapping[str | None, pl.LazyFrame]:
    """Partition -> rows of a source that was never read: the newest partitions, oldest first."""
    spec, sources = pipeline.spec, Sources(pipeline.settings)
    source = spec.sources[table]
    known = windows(spec.partitions, sources.now()) if source.partitioned else None
    spans = {span.key: span for span in known or ()}
    there = sources.look(table, source, known).keys
    keys = [key for key in there if partition in (None, key)][-_LOOKED_AT:]
    if not keys:
        raise StorageError(
            f"The source {table!r} has no complete"
            f" {f'partition {partition}' if partition else 'data yet'}."
            + (f" The newest complete ones: {', '.join(map(str, there[-3:]))}." if there else "")
        )
    found = {key: sources.read(table, source, spans[key] if key else None) for key in keys}
    return {key: reading.frame.lazy() for key, reading in found.items()}


def raw_tables(
    pipeline: Pipeline, table: str, partition: str | None
) -> Mapping[str | None, pl.LazyFrame]:
    """Partition -> rows of a source as they were read, oldest first.

    Raises:
        StorageError: nothing is read yet, or not this partition.
        Recalled: a snapshot was recalled.
    """
    store = pipeline.store
    whole, commit = Address(pipeline.name, "raw_snapshot", table), store.resolve(MAIN)
    records = published_partitions(store, commit, whole)
    alone = read_record(store, commit, whole) if not records else None
    found = {None: alone} if alone else dict(records)
    if partition is not None:
        found = {key: record for key, record in found.items() if key == partition}
    if not found:
        there = f"; it has {min(records)} to {max(records)}" if records else ""
        raise StorageError(
            f"{whole} has no snapshot{f' of {partition}' if partition else ''}{there}. Read the"
            f" source first: ml-assets run {pipeline.name} --through raw_snapshot"
        )
    for record in found.values():
        require_sound(store, commit, record)
    return {key: store.scan(commit, whole.at(key).table) for key in found}


def write_suite(suite: Mapping[str, Any], file: Path, *, force: bool) -> None:
    """Write a suite, whole or not at all.

    Raises:
        SettingsError: the file is there (without ``force``), or cannot be written.
    """
    text = json.dumps(suite, indent=2, ensure_ascii=False) + "\n"
    if file.exists() and not force:
        raise SettingsError(
            f"{file} exists already and was not changed: name another --out, or pass --force."
        )
    try:
        write_whole(file, text.encode(), durable=False)
    except OSError as error:
        raise SettingsError(f"{file} cannot be written: {error.strerror}.") from error


def write_docs(pipeline: Pipeline, table: str, partition: str | None) -> Path:
    """Data Docs of a table's contract and its newest snapshot (or the one named); the first page.

    Raises:
        StorageError: there is no such snapshot.
        ContractError: Great Expectations is not installed, or the table is too long for it.
    """
    from ml_assets.assets.validated_table.contract.data_docs import write_data_docs

    settings = pipeline.settings
    contract = contract_of(pipeline.folder, source_of(pipeline.spec, table))
    key, frame = list(raw_tables(pipeline, table, partition).items())[-1]
    place = settings.home / "data_docs" / pipeline.name / table
    with tempfile.TemporaryDirectory(dir=scratch_in(settings.scratch)) as scratch:
        site = Path(scratch) / "site"
        write_data_docs(frame.collect(), contract, key, site)
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        site.replace(place)
    return place / "index.html"
