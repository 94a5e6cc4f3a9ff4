"""A new pipeline's folder: spec, feature function, contract, and a table to run on at once."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter, ValidationError

from ml_assets.errors import SpecError
from ml_assets.scaffold.labelled_table import Table
from ml_assets.scaffold.text import MODEL, OWN_MODEL, defs_yaml, features_py, network_py
from ml_assets.spec.base import Name
from ml_assets.spec.load import SPEC_FILE

SOURCE = "rows"


def write_pipeline(
    room: Path, name: str, sources: Path, table: Table, *, network: bool = False
) -> Path:
    """Write the pipeline's folder and its table; all of the folder appears at once, or nothing.

    Args:
        room: the folder that the pipeline's own is made in; made where it is not there.
        sources: root of the source paths, where the table goes to ``<name>/rows.parquet``.
        network: write a network of the team's own, too, which the spec then names.

    Raises:
        SpecError: the name cannot be one, or the folder is there already.
    """
    folder = room / _checked_name(name)
    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"{folder} is there already: choose another name, or move it away.")
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=_made(room)))
    except OSError as error:
        raise SpecError(f"No folder can be made in {room}: {error}") from error
    try:
        (draft / "contracts").mkdir()
        model = OWN_MODEL if network else MODEL
        (draft / SPEC_FILE).write_text(defs_yaml(folder.name, table, model))
        if network:
            (draft / "network.py").write_text(network_py(folder.name))
        (draft / "features.py").write_text(features_py(folder.name, table))
        suite = json.dumps(_contract(table), indent=2)
        (draft / "contracts" / f"{SOURCE}.json").write_text(suite + "\n")
        _write_rows(rows_file(sources, folder.name), table.frame)
        draft.chmod(0o755)  # mkdtemp's are closed to others
        draft.rename(folder)
    except OSError as error:
        raise SpecError(f"The pipeline {folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def rows_file(sources: Path, name: str) -> Path:
    """Where the table of a new pipeline is: its source from then on."""
    return sources / name / f"{SOURCE}.parquet"


def _contract(table: Table) -> dict[str, object]:
    key, label = table.key, table.names("label")[0]
    columns = [column.name for column in table.columns]
    unique = (
        ("expect_column_values_to_be_unique", {"column": key[0]})
        if len(key) == 1
        else ("expect_compound_columns_to_be_unique", {"column_list": list(key)})
    )
    stated = [
        ("expect_table_columns_to_match_set", {"column_set": columns, "exact_match": True}),
        unique,
    ]
    if not table.frame[label].null_count():  # else an outcome may be unknown: not trained on
        known = {"column": label, "mostly": 0.99}
        stated.append(("expect_column_values_to_not_be_null", known))
    expectations = [{"type": t, "kwargs": k, "severity": "critical"} for t, k in stated]
    return {"name": SOURCE, "expectations": expectations}


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
    draft.replace(file)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
