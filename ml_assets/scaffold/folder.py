"""Writes a new pipeline's folder: spec, feature function, contract and data, ready to run."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from filecmp import cmp
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import TypeAdapter, ValidationError

from ml_assets.assets.validated_table.contract.proposal import propose
from ml_assets.errors import SpecError
from ml_assets.scaffold.labelled_table import LabelledTable
from ml_assets.scaffold.lag_features import (
    calendar_features,
    lags,
    past_name,
    short,
    spans,
    usual_name,
)
from ml_assets.scaffold.named_files import tables_below
from ml_assets.scaffold.text import MODEL, OWN_MODEL, defs_yaml, network_py
from ml_assets.spec.base import Name
from ml_assets.spec.load import SPEC_FILE

SOURCE = "rows"


def write_pipeline(
    room: Path,
    name: str,
    sources: Path,
    table: LabelledTable,
    zone: str = "UTC",
    *,
    network: bool = False,
) -> Path:
    """Write the pipeline's folder and its table; all of the folder appears at once, or nothing.

    Args:
        room: the folder that the pipeline's own is made in; made where it is not there.
        sources: root of the source paths, where the table goes to ``<name>/rows.parquet``, or its
            files to the folder ``<name>``.
        zone: of days and weeks, and of times that are written without one.
        network: write a network of the team's own, too, which the spec then names.

    Raises:
        SpecError: the name cannot be one, or the folder is there already.
    """
    folder = new_folder(room, name)
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=_made(room)))
    except OSError as error:
        raise SpecError(f"No folder can be made in {room}: {error}") from error
    try:
        (draft / "contracts").mkdir()
        model = OWN_MODEL if network else MODEL
        (draft / SPEC_FILE).write_text(defs_yaml(folder.name, table, zone, model))
        if network:
            (draft / "network.py").write_text(network_py(folder.name))
        (draft / "features.py").write_text(features_py(folder.name, table))
        suite = json.dumps(_contract(table), indent=2)
        (draft / "contracts" / f"{SOURCE}.json").write_text(suite + "\n")
        if table.given.rows:
            _write_rows(rows_file(sources, folder.name), table.frame)
        copies = {sources / place: file for file, place in table.given.copies.items()}
        for place in {sources / name for _ in copies}:
            _require_only(place, copies)
        for place, file in copies.items():
            _copy(file, place)
        draft.chmod(0o755)  # mkdtemp's are closed to others
        draft.rename(folder)
    except OSError as error:
        raise SpecError(f"The pipeline {folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def new_folder(room: Path, name: str, rooms: Sequence[Path] = ()) -> Path:
    """The folder of a new pipeline, which holds nothing yet.

    Args:
        rooms: where other pipelines lie.

    Raises:
        SpecError: the name cannot be one, or the folder, or a pipeline of this name, is there.
    """
    folder = room / _checked_name(name)
    for other in (one / name for one in rooms if one != room):
        if (other / SPEC_FILE).is_file():
            raise SpecError(
                f"There is a pipeline {name} in {other}: they would share tables and ledger. Choose"
                " another name."
            )
    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"{folder} exists already: choose another name, or move it away.")
    return folder


def rows_file(sources: Path, name: str) -> Path:
    """Return where the table of a new pipeline is: its source from then on."""
    return sources / name / f"{SOURCE}.parquet"


def _contract(table: LabelledTable) -> dict[str, Any]:
    """What the table meets, each of its partitions by itself: as ``data contract propose``."""
    keys = table.given.keys
    frames = (
        [part for _, part in table.frame.group_by(keys, maintain_order=True)]
        if keys is not None
        else [table.frame]
    )
    parts = [frame.lazy() for frame in frames]
    return propose(SOURCE, parts, table.key, table.label, is_measured=table.ahead is not None)


def _checked_name(name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise SpecError(
            f"{name!r} cannot name a pipeline: lower-case letters, digits and underscores are"
            " expected, a letter first."
        ) from error


def _write_rows(file: Path, frame: pl.DataFrame) -> None:
    draft = _made(file.parent) / f".{SOURCE}.{os.getpid()}"
    frame.write_parquet(draft)
    try:
        if file.is_file() and not cmp(file, draft, shallow=False):
            raise SpecError(_OTHERS.format(file))
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


_OTHERS = (
    "{} is there already, with other rows, which another pipeline may read. Choose another name, or"
    " move that file away."
)


def _require_only(folder: Path, expected: Mapping[Path, Path]) -> None:
    """Refuse to write beside, or over, what another pipeline of this name read.

    Args:
        expected: file that is to be there -> a file with its bytes.

    Raises:
        SpecError: the folder holds other tables.
    """
    for file in tables_below(folder):
        if not (file in expected and cmp(file, expected[file], shallow=False)):
            raise SpecError(_OTHERS.format(file))


def _copy(file: Path, place: Path) -> None:
    """With the times that it has: a file of now is taken for one that is still being written."""
    draft = _made(place.parent) / f".{place.name}.{os.getpid()}"
    shutil.copy2(file, draft)
    draft.replace(place)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


HISTORY = "ml_assets.assets.feature_set.history_features"
"""The module that makes features of earlier rows."""


def features_py(name: str, table: LabelledTable) -> str:
    """The feature function: the table as it is, with its past where it is a time series."""
    return _of_series(name, table) if lags(table) else _of_rows(name, table)


def _of_rows(name: str, table: LabelledTable) -> str:
    imports, steps = "", ['tables["rows"]', *_as_true(table)]
    decided = _quoted(table.decision_at)
    moments, comment = table.moments, ""
    if moments is None:
        imports = "from datetime import UTC, datetime\n"
        comment = "    # the table has no times: every row is decided at one moment\n"
        moment = 'pl.lit(datetime(2000, 1, 1, tzinfo=UTC), pl.Datetime("us", "UTC"))'
        steps.append(f".with_columns({moment}.alias({decided}))")
    elif table.frame.schema[moments.time] == pl.Date():
        comment = "    # the table has days: a prediction is made as its day begins\n"
        moment = f'pl.col({_quoted(moments.time)}).cast(pl.Datetime("us", "UTC"))'
        steps.append(f".with_columns({moment}.alias({decided}))")
    if table.given.calendar and moments:
        steps.append(_in_window(moments.time))
    elif table.copies:
        key = ", ".join(map(_quoted, table.key))
        steps += [f".sort({key})", _once(table)]
    body = "".join(f"\n        {step}" for step in steps)
    returned = f"({body}\n    )" if len(steps) > 1 else steps[0]
    return f"{_head(name, imports)}{_signature()}{comment}    return {returned}\n"


def _as_true(table: LabelledTable) -> list[str]:
    """A binary label that its source holds as text; a row without one stays so."""
    positive = table.predicted.positive
    if positive is None:
        return []
    label = f"pl.col({_quoted(table.label)}) == {_quoted(positive)}"
    return [f".with_columns({label})"]


def _of_series(name: str, table: LabelledTable) -> str:
    assert table.moments is not None
    time = table.moments.time
    entity = [key for key in table.key if key != time]
    past = [
        *(f"lag({_of_past(table, 'lag', back)})," for back in lags(table)),
        *(f"trailing({_of_past(table, 'mean', span)})," for span in spans(table)),
    ]
    seen = "".join(f"    {line}\n" for line in past)
    by = f"by={json.dumps(entity, ensure_ascii=False)}, " if entity else ""
    at = _quoted(time)
    steps = [f"add_history(rows, rows, *PAST, {by}decision_at={at}, known_at={at})", ".lazy()"]
    if parts := calendar_features(table):
        made = "".join(
            f"\n            pl.col({at}).dt.{part}().cast(pl.String).alias({_quoted(name)}),"
            for name, part in parts.items()
        )
        steps.append(f".with_columns({made}\n        )")
    if table.given.calendar:
        steps.append(_in_window(time))
    body = "".join(f"\n        {step}" for step in steps)
    imports = f"from {HISTORY} import add_history, lag, trailing\n"
    return (
        f"{_head(name, '', imports)}"
        f"PAST = (  # by time, never by rows: over a gap there is none\n{seen})\n\n\n"
        f'{_signature()}    rows = tables["rows"].collect()\n    return ({body}\n    )\n'
    )


def _of_past(table: LabelledTable, of: Literal["lag", "mean"], back: timedelta) -> str:
    """What such a column is made of; its name, where the usual one is taken."""
    name = past_name(table, of, back)
    own = f", name={_quoted(name)}" if name != usual_name(table, of, back) else ""
    return f"{_quoted(table.label)}, {_quoted(short(back))}{own}"


def _in_window(time: str) -> str:
    at = f"pl.col({_quoted(time)})"
    return f'.filter({at}.is_between(window.start, window.end, closed="left"))'


def _once(table: LabelledTable) -> str:
    """The first of rows that differ by their key alone, and all rows whose label is not known."""
    label = _quoted(table.label)
    learned = [*table.names("numeric"), *table.names("categorical"), table.label]
    columns = "".join(f"\n                {_quoted(name)}," for name in learned)
    return (
        f".filter(  # copies under another key are learned from once\n"
        f"            pl.col({label}).is_null()\n"
        f"            | pl.struct({columns}\n            ).is_first_distinct()\n        )"
    )


def _head(name: str, imports: str, ours: str = "") -> str:
    return f'''\
"""What {name} knows of a row when it decides."""

from collections.abc import Mapping
{imports}
import polars as pl

{ours}from ml_assets.spec.window import Window


'''


def _signature() -> str:
    return '''\
def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row per decision: the key, the label, and every feature that the spec names."""
'''


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
