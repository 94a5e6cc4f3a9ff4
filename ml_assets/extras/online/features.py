"""Features online: the newest row of each entity, served for look-ups, and equal to the batch's.

In a service::

    from ml_assets.extras.online.features import open_features

    features = open_features("flight_delays")
    features.look_up({"carrier": "UA", "flight": 1545, "origin": "EWR"})
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ml_assets.errors import SpecError, StorageError, quoted
from ml_assets.extras.online.open import open_online
from ml_assets.extras.online.store import (
    STAGE,
    OnlineStore,
    Served,
    column_types,
    decode,
    encode,
    entity_key,
    parse_entity,
    typed_entity,
)
from ml_assets.records.recalls import require_sound
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.features import FeaturesSpec, OnlineSpec
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import Pipeline, open_pipeline


def latest_rows(
    partitions: Iterable[pl.LazyFrame], online: OnlineSpec, features: FeaturesSpec
) -> pl.DataFrame:
    """The newest feature row of each entity, by its decision; of two at once the later key's.

    Holds the entities and one partition at a time. Rows without a value for the entity are none's.

    Args:
        partitions: of the feature set, oldest first.
    """
    entity, served = list(online.entity), online.features
    wanted = served or (*features.numeric, *features.categorical)
    columns = list(dict.fromkeys([*entity, *features.key, features.decision_at, *wanted]))
    newest: pl.DataFrame | None = None
    for partition in partitions:
        rows = partition.select(columns).drop_nulls(entity).collect()
        known = rows if newest is None else pl.concat([newest, rows])
        ordered = known.sort(features.decision_at, *features.key, maintain_order=True)
        newest = ordered.unique(entity, keep="last", maintain_order=True)
    if newest is None:
        raise ValueError("there is no partition to take the newest rows of")
    return newest.sort(entity)


def serve(
    store: OnlineStore, pipeline: str, version: str, entity: Sequence[str], rows: pl.DataFrame
) -> Served:
    """Put the rows in the place of those that a pipeline serves, in one step.

    Raises:
        StoreAway: the online store does not answer.
        SpecError: a column's type cannot be looked up.
    """
    served = Served(pipeline, version, tuple(entity), column_types(rows), len(rows))
    store.serve(served, encode(rows, entity))
    return served


def unlike_batch(store: OnlineStore, served: Served, rows: pl.DataFrame) -> str:
    """Look rows of the batch up: the first that is not what it was, in words; empty where all are.

    Args:
        rows: some of those that were served.
    """
    batch = dict(encode(rows, served.entity))
    found = store.get(served.pipeline, list(batch))
    if found is None or found.served != served:
        return f"version {served.version[:12]} is not the one that is served"
    for (entity, expected), row in zip(batch.items(), found.rows, strict=True):
        if row != expected:
            there = quoted(row) if row else "not there"
            return f"{quoted(entity)} is {there} online and {quoted(expected)} in the batch"
    return ""


@dataclass(frozen=True)
class Features:
    """The served features of one pipeline. One is for one thread of one process."""

    pipeline: str
    entity: tuple[str, ...]
    """The columns that name an entity."""
    store: OnlineStore

    def look_up(self, entity: Mapping[str, Any]) -> dict[str, Any] | None:
        """Column -> value of the newest feature row of an entity; None where there is no such one.

        Args:
            entity: column -> value, as typed in the feature set.

        Raises:
            SpecError: other columns are given than name an entity, or values of another type.
            StorageError: the pipeline serves nothing.
            StoreAway: the store does not answer.
        """
        return self.look_up_many([entity])[0]

    def look_up_many(self, entities: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """The same for several, all of one version."""
        names = self.entity
        for one in entities:
            if set(one) != set(names):
                raise SpecError(
                    f"{self.pipeline} looks features up by {', '.join(names)}; given are"
                    f" {', '.join(one) or 'none'}."
                )
        asked = [entity_key([one[name] for name in names]) for one in entities]
        found = self.store.get(self.pipeline, asked)
        if found is None:
            raise self._nothing()
        types = found.served.types
        if None in found.rows:
            typed = [typed_entity(types, one) for one in entities]
            if [entity_key([one[name] for name in names]) for one in typed] != asked:
                return self.look_up_many(typed)
        return [decode(row, types) if row is not None else None for row in found.rows]

    def served(self) -> Served:
        """Return what is served.

        Raises:
            StorageError: nothing is.
        """
        served = self.store.current(self.pipeline)
        if served is None:
            raise self._nothing()
        return served

    def _nothing(self) -> StorageError:
        return StorageError(
            f"{self.pipeline} serves no features from the online store (ML_ASSETS_ONLINE). Serve"
            f" them first: ml-assets run {self.pipeline} --through {STAGE}"
        )


def open_features(pipeline: str, settings: Settings | None = None) -> Features:
    """The served features of a pipeline, by its name: see ``features_of``.

    Raises:
        SpecError: there is no such pipeline.
    """
    return features_of(open_pipeline(pipeline, settings or read_settings()))


def features_of(pipeline: Pipeline) -> Features:
    """The served features of a pipeline.

    Raises:
        SpecError: it serves no features.
        SettingsError: the client of the server is not installed.
        Recalled: what is served was made from bad data.
    """
    if pipeline.spec.online is None:
        raise SpecError(
            f"{pipeline.name} serves no features online: add to its spec, for example,"
            f" online: {{entity: [{pipeline.spec.features.key[0]}]}}"
        )
    store = open_online(pipeline.settings.online)
    features = Features(pipeline.name, pipeline.spec.online.entity, store)
    commit = pipeline.store.resolve()
    record = read_record(pipeline.store, commit, Address(pipeline.name, STAGE))
    if record is not None:
        require_sound(pipeline.store, commit, record)
    return features


def look_up_text(features: Features, given: Mapping[str, str]) -> dict[str, Any] | None:
    """The same with the entity as text, in any order: that of a command line.

    Raises:
        SpecError: it is not what features are looked up by.
    """
    served = features.served()
    values = parse_entity(served, given)
    return features.look_up(dict(zip(served.entity, values, strict=True)))
