"""How a command hands out rows: a file by its extension, or standard output in a format."""

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ml_assets.errors import SettingsError

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("table", "csv", "jsonl", "parquet")
_EXTENSIONS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_SHOWN_ROWS = 20


def add_output(parser: argparse.ArgumentParser, default: str) -> None:
    """The options ``--format`` and ``--output``."""
    parser.add_argument(
        "--format", choices=FORMATS, help=f"default: by the extension of --output, else {default}"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write a file (.csv, .jsonl, .parquet)"
    )
    parser.set_defaults(default_format=default)


def output_format(arguments: argparse.Namespace) -> str:
    """The format that the options ask for: asked before the work, so that none is lost.

    Raises:
        SettingsError: the extension of the file says nothing.
    """
    return arguments.format or _format_of(arguments.output, arguments.default_format)


def hand_out(frame: "pl.DataFrame", target: Path | None, kind: str) -> None:
    """Write the rows to a file, which appears whole, or to standard output.

    Raises:
        SettingsError: the file cannot be written.
    """
    if target is None:
        _to_stdout(frame, kind)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_bytes(_bytes(frame, kind))
        draft.replace(target)
    except OSError as error:
        raise SettingsError(f"{target} cannot be written: {error.strerror}.") from error
    print(f"{len(frame):,} rows to {target}", file=sys.stderr)


def _format_of(target: Path | None, default: str) -> str:
    if target is None:
        return default
    found = _EXTENSIONS.get(target.suffix.lower())
    if found is None:
        known = ", ".join(_EXTENSIONS)
        raise SettingsError(
            f"--output {target}: the extension {target.suffix!r} names no format; use {known},"
            " or say --format."
        )
    return found


def _to_stdout(frame: "pl.DataFrame", kind: str) -> None:
    if kind == "table":
        print(_drawn(frame))
        return
    sys.stdout.buffer.write(_bytes(frame, kind))
    sys.stdout.flush()


def _bytes(frame: "pl.DataFrame", kind: str) -> bytes:
    match kind:
        case "csv":
            return frame.write_csv().encode()
        case "jsonl":
            return f"{frame.write_ndjson().rstrip()}\n".encode()
        case "parquet":
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            return buffer.getvalue()
        case _:
            return f"{_drawn(frame)}\n".encode()


def _drawn(frame: "pl.DataFrame") -> str:
    import polars as pl

    columns = -1 if not sys.stdout.isatty() else 12
    with pl.Config(
        tbl_rows=_SHOWN_ROWS, tbl_cols=columns, tbl_width_chars=-1, tbl_hide_dataframe_shape=True
    ):
        return f"{frame}\n{len(frame):,} rows, {frame.width} columns"
