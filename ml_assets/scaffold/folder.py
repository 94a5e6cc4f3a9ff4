"""Writes a new pipeline's folder: spec, feature function, contract and data, ready to run."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from filecmp import cmp
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from ml_assets.assets.validated_table.contract.proposal import propose
from ml_assets.errors import SpecError
from ml_assets.scaffold.function_text import features_py
from ml_assets.scaffold.labelled_table import LabelledTable
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
