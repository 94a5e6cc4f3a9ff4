"""The training set on disk: a manifest over shards, one for each partition.

A shard is a folder of memory-mapped arrays, named by the SHA-256 of its ``shard.json``. It holds
raw rows. The values fitted on ``train`` lie in ``schema.json``, whose SHA-256 names the set, and
are applied when rows are read. So the next window reuses the same shards, except for new
partitions.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.encoding import (
    label_array,
    number_arrays,
    query_starts,
    word_arrays,
)
from ml_assets.assets.training_set.fitting import Fitted, fit
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.assets.training_set.tokens import token_arrays
from ml_assets.errors import RowsRefused, StorageError, counted
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.reached_code import closure
from ml_assets.spec.texts import Tokens
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    SHARD_FILE,
    SPLIT,
    ModelManifest,
    Preprocessing,
    Ref,
    Shard,
    ShardFiles,
    ShardSchema,
    Split,
)
from ml_assets.store.objects import bytes_digest, describe, read_verified, renew
from ml_assets.store.row_encoding import checksums

NO_ROWS = SplitRows(())


@dataclass(frozen=True)
class NotComparable:
    """Rows that a model cannot be scored on, and why."""

    reason: str


@dataclass(frozen=True)
class Known:
    """Shards that were encoded before: what is equal to one of them is not encoded again."""

    shards: Mapping[str, Shard] = field(default_factory=dict)
    """Key of the version that each was encoded from -> the shard."""
    ahead: frozenset[str] = frozenset()
    """The keys of those that were encoded with their partitions."""
    kept: Callable[[str], bool] = lambda _: False
    """Whether that of a digest is kept: from then on as long as a new one."""


NOTHING_KNOWN = Known()


@dataclass(frozen=True)
class Written:
    """A training set on disk."""

    ref: Ref
    shards: int
    fresh: tuple[Shard, ...]
    """Those that had to be encoded; the others were there."""
    ahead: int
    """How many of the others were encoded with their partitions."""
    versions: dict[str, Shard]
    """Key of the version that a shard was encoded from -> the shard; of those that have one."""

    @property
    def encoded(self) -> int:
        """Return how many had to be encoded."""
        return len(self.fresh)


def write_labelled(
    rows: Mapping[Split, SplitRows],
    features: FeaturesSpec,
    label: LabelSpec,
    folder: Path,
    *,
    beside: SplitRows = NO_ROWS,
    known: Known = NOTHING_KNOWN,
    scratch: Path | None = None,
) -> Written:
    """Lay labelled rows out below ``folder``, a shard for each part; fitted on ``train`` alone.

    Args:
        beside: rows of no split, which the next window has: of them shards are made, too.
        known: shards that need not be encoded again.
        scratch: where files may lie meanwhile.
    """
    fitted = fit(rows["train"], features, label, scratch)
    tokens = fitted.preprocessing.tokens
    encoder = _Shards(folder, features.numeric, features.categorical, label, known, tokens)
    splits: dict[Split, tuple[Shard, ...]] = {n: encoder.of(parts) for n, parts in rows.items()}
    encoder.of(beside)
    ref = _write(splits, fitted, label, folder)
    return Written(ref, encoder.made, tuple(encoder.fresh), encoder.ahead, encoder.versions)


def write_shard(
    part: Part, features: FeaturesSpec, label: LabelSpec, folder: Path
) -> tuple[str, Shard]:
    """The shard of a version's labelled rows, below ``folder``, and the key that it is known by.

    Raises:
        SpecError: a label is not what the spec declares.
    """
    encoder = _Shards(folder, features.numeric, features.categorical, label)
    encoder.of(SplitRows((part,)))
    ((key, shard),) = encoder.versions.items()
    return key, shard


def write_scoring_set(
    rows: pl.DataFrame, manifest: ModelManifest, label: LabelSpec, folder: Path
) -> Ref | NotComparable:
    """Encode holdout rows with a model's own preprocessing, so that it can be scored on them."""
    wanted = _columns(manifest.preprocessing)
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        gone = counted(len(missing), "feature", "are")
        return NotComparable(f"{gone} no longer in the feature set: {', '.join(missing)}")
    if (manifest.task, manifest.classes) != (label.task, label.classes):
        return NotComparable("it was trained to predict something else")
    return _write_holdout(rows, manifest, label, folder)


def write_rows_to_score(rows: pl.DataFrame, manifest: ModelManifest, folder: Path) -> Ref:
    """Encode rows whose outcome nobody knows with a model's own preprocessing.

    A label that scoring does not read stands in the place of theirs.

    Raises:
        RowsRefused: the rows lack a feature of the model.
    """
    wanted = _columns(manifest.preprocessing)
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        raise RowsRefused(
            f"The model reads {missing}, which the feature set no longer has. Release a model "
            "that was trained on the current features: ml-assets run"
        )
    query = "__query" if manifest.task == "ranking" else None
    label = LabelSpec(column="__label", task=manifest.task, classes=manifest.classes, query=query)
    # 1: of every task a label, and of a ranking a relevant one, without which it has no query
    stand_in = pl.lit(manifest.classes[0] if manifest.classes else 1.0).alias(label.column)
    together = [pl.lit(0).alias(query)] if query else []
    labelled = rows.select(*wanted, stand_in, *together)
    return _write_holdout(labelled, manifest, label, folder)


def shard_ref(data: Ref, shard: Shard) -> Ref:
    """The folder of a shard of a set."""
    return Ref(uri=str(Path(data.uri).parent / shard.digest), digest=shard.digest)


def load_schema(ref: Ref) -> ShardSchema:
    """The schema of a set.

    Raises:
        StorageError: it is missing, or is not the one that the digest names.
    """
    if not Path(ref.uri).is_dir():
        raise StorageError(
            f"The training set {ref.uri} is no longer kept: house-keeping removes those of past "
            "releases by age. `ml-assets release prove` makes it again from its snapshots."
        )
    file = Path(ref.uri) / SCHEMA_FILE
    content = file.read_bytes() if file.is_file() else b""
    if bytes_digest(content) != ref.digest:
        raise StorageError(
            f"The training set {ref.uri} is missing or damaged (its {SCHEMA_FILE} should have the"
            f" checksum {ref.digest[:12]}). Delete the folder and materialize training_set again."
        )
    return ShardSchema.model_validate_json(content)


def read_rows(ref: Ref, schema: ShardSchema, split: Split) -> pl.DataFrame:
    """The rows of a split before encoding, labels included, held to the schema.

    Raises:
        StorageError: they are missing, or not what the schema names.
    """
    return pl.concat(each_shard(ref, schema, split))


def each_shard(ref: Ref, schema: ShardSchema, split: Split) -> Iterator[pl.DataFrame]:
    """The same a shard at a time, for what does not need all of them at once."""
    for folder, files in _shard_files(ref, schema, split):
        yield pl.read_parquet(BytesIO(read_verified(files.table, folder)))


def read_tokens(
    ref: Ref, schema: ShardSchema, split: Split
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """The tokens of a split of texts, and where those of each row begin; see ``ShardFiles``."""
    parts, starts = [np.zeros(1, np.uint16)], [np.ones(1, np.int64)]
    for folder, files in _shard_files(ref, schema, split):
        assert files.tokens is not None and files.texts is not None
        tokens, texts = (
            np.load(folder / one.path, allow_pickle=False) for one in (files.tokens, files.texts)
        )
        starts.append(texts[1:] + (starts[-1][-1] - 1))
        parts.append(tokens[1:])
    return np.concatenate(parts), np.concatenate(starts)


def scan_rows(ref: Ref, schema: ShardSchema) -> pl.LazyFrame:
    """The rows of all splits before encoding, each with its split in the column ``SPLIT``.

    Raises:
        StorageError: a shard is missing, or not what the schema names.
    """
    return pl.concat(
        pl.scan_parquet(folder / files.table.path).with_columns(pl.lit(split).alias(SPLIT))
        for split in schema.splits
        for folder, files in _shard_files(ref, schema, split)
    )


def _shard_files(ref: Ref, schema: ShardSchema, split: Split) -> Iterator[tuple[Path, ShardFiles]]:
    """The folder of each shard of a split, with what lies in it."""
    for shard in schema.splits[split]:
        folder = Path(ref.uri).parent / shard.digest
        file = folder / SHARD_FILE
        content = file.read_bytes() if file.is_file() else b""
        if bytes_digest(content) != shard.digest:
            raise StorageError(
                f"{file} is missing or damaged: its checksum should be {shard.digest[:12]}. Delete"
                " the folder and materialize training_set again."
            )
        yield folder, ShardFiles.model_validate_json(content)


def _columns(preprocessing: Preprocessing) -> list[str]:
    text = [preprocessing.tokens.column] if preprocessing.tokens else []
    return [*(c.name for c in (*preprocessing.numeric, *preprocessing.categorical)), *text]


def _write_holdout(
    rows: pl.DataFrame, manifest: ModelManifest, label: LabelSpec, folder: Path
) -> Ref:
    """Rows to score, to be read with a model's own preprocessing."""
    numeric = tuple(column.name for column in manifest.preprocessing.numeric)
    categorical = tuple(column.name for column in manifest.preprocessing.categorical)
    tokens = manifest.preprocessing.tokens
    encoder = _Shards(folder, numeric, categorical, label, tokens=tokens)
    fitted = Fitted(manifest.preprocessing, manifest.label_scale, (0.0,))
    return _write({"holdout": encoder.of(SplitRows.of(rows))}, fitted, label, folder)


def _write(
    splits: Mapping[Split, tuple[Shard, ...]], fitted: Fitted, label: LabelSpec, folder: Path
) -> Ref:
    schema = ShardSchema(
        task=label.task,
        classes=label.classes,
        preprocessing=fitted.preprocessing,
        label_rate=fitted.label_rate,
        label_scale=fitted.label_scale,
        splits=dict(splits),
    )
    with _draft(folder) as draft:
        (draft / SCHEMA_FILE).write_bytes(canonical_json(schema))
        return _adopt(draft, folder / digest_of(schema), SCHEMA_FILE)


@dataclass
class _Shards:
    """Makes the shards of parts, where there are none of them yet."""

    folder: Path
    numeric: Sequence[str]
    categorical: Sequence[str]
    label: LabelSpec
    known: Known = NOTHING_KNOWN
    tokens: Tokens | None = None
    """How texts are cut; None: there are none."""
    versions: dict[str, Shard] = field(default_factory=dict)
    made: int = 0
    fresh: list[Shard] = field(default_factory=list)
    ahead: int = 0

    def of(self, rows: SplitRows) -> tuple[Shard, ...]:
        """A shard for each part that has rows."""
        return tuple(shard for part in rows.parts if (shard := self._shard(part)).rows)

    def _shard(self, part: Part) -> Shard:
        key = self._key(part)
        shard = self.known.shards.get(key)
        if shard is None or not self.known.kept(shard.digest):
            shard = self._encode(part.rows.collect())
            self.fresh.append(shard)
        elif key in self.known.ahead:
            self.ahead += 1
        self.made += 1
        if key:
            self.versions[key] = shard
        return shard

    def _key(self, part: Part) -> str:
        """What a shard is made from: rows, columns, code. Empty where the rows are no version's."""
        if part.source is None:
            return ""
        columns = (list(self.numeric), list(self.categorical))
        label = self.label.model_dump(mode="json")
        cut = [digest_of(self.tokens)] if self.tokens else []
        return digest_of([part.source, *columns, label, *cut, _code()])

    def _encode(self, frame: pl.DataFrame) -> Shard:
        with _draft(self.folder) as draft:
            numeric, missing = number_arrays(frame, self.numeric)
            categorical, words = word_arrays(frame, self.categorical)
            label = label_array(frame, self.label)
            arrays = {"numeric": numeric, "missing": missing, "categorical": categorical}
            arrays |= {"label": label}
            if self.label.query:
                arrays["queries"] = query_starts(frame, self.label)
            if self.tokens:
                arrays["tokens"], arrays["texts"] = token_arrays(frame, self.tokens, self.label)
            arrays["checksums"] = checksums(numeric, missing, categorical, label)
            for kind, array in arrays.items():
                np.save(draft / f"{kind}.npy", array, allow_pickle=False)
            (draft / "words.json").write_bytes(canonical_json(words))
            frame.write_parquet(draft / "rows.parquet", compression="zstd", row_group_size=100_000)
            names = {kind: f"{kind}.npy" for kind in arrays}
            names |= {"words": "words.json", "table": "rows.parquet"}
            files = dict(zip(names, describe(draft, names.values()), strict=True))
            manifest = ShardFiles.model_validate({"rows": len(frame), **files})
            (draft / SHARD_FILE).write_bytes(canonical_json(manifest))
            ref = _adopt(draft, self.folder / digest_of(manifest), SHARD_FILE)
            return Shard(rows=len(frame), digest=ref.digest, table=files["table"].sha256)


@cache
def _code() -> str:
    """The digest of the code that encodes, and of the packages that it uses."""
    return closure([f"{__name__}:_Shards"]).digest()


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    draft = folder / f".draft-{uuid.uuid4().hex}"
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _adopt(draft: Path, target: Path, manifest: str) -> Ref:
    for file in draft.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    if not renew(target / manifest):
        try:
            draft.rename(target)
        except OSError:  # the same was written at the same time
            if not (target / manifest).is_file():
                raise
    return Ref(uri=str(target), digest=target.name)
