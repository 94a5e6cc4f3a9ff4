"""Prints the output of commands: lines of progress, columns, pages, and rows in a format or to a
file; and the exit codes."""

import io
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from ml_assets.errors import SettingsError, counted, one_line

if TYPE_CHECKING:
    import polars as pl

_EXTENSIONS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_SHOWN_ROWS = 20


def tell(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


def tell_page(page: Path, *, open_page: bool) -> None:
    """Say where a page is, and open it where that is asked for."""
    print(page)
    if open_page:
        webbrowser.open(page.absolute().as_uri())


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell; the last one is as long as it is. A row is a line."""
    rows = [tuple(one_line(cell) for cell in row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def row_format(kind: str | None, target: Path | None, default: str) -> str:
    """The format that the options ask for, checked before the work so that none is lost.

    Raises:
        SettingsError: the extension of the file says nothing.
    """
    return kind or _format_of(target, default)


def hand_out(frame: "pl.DataFrame", target: Path | None, kind: str) -> None:
    """Write the rows to a file, which appears whole, or to standard output.

    Raises:
        SettingsError: the file, or standard output, cannot be written.
    """
    if target is None:
        _to_stdout(frame, kind)
        return
    from ml_assets.store.objects import write_whole

    try:
        write_whole(target, _bytes(frame, kind), durable=False)
    except OSError as error:
        raise SettingsError(f"{target} cannot be written: {error.strerror}.") from error
    print(f"{counted(len(frame), 'row')} to {target}", file=sys.stderr)


def _format_of(target: Path | None, default: str) -> str:
    if target is None:
        return default
    found = _EXTENSIONS.get(target.suffix.lower())
    if found is None:
        known = ", ".join(_EXTENSIONS)
        raise SettingsError(
            f"--output {target}: the extension {target.suffix!r} is not a known format; use "
            f"{known}, or say --format."
        )
    return found


def _to_stdout(frame: "pl.DataFrame", kind: str) -> None:
    try:
        if kind == "table":
            print(_drawn(frame))
        else:
            sys.stdout.buffer.write(_bytes(frame, kind))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise SettingsError(f"Standard output cannot be written: {error.strerror}.") from error


def _bytes(frame: "pl.DataFrame", kind: str) -> bytes:
    match kind:
        case "csv":
            return frame.write_csv().encode()
        case "jsonl":
            return frame.write_ndjson().encode() if len(frame) else b""
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
        return f"{frame}\n{counted(len(frame), 'row')}, {counted(frame.width, 'column')}"


DONE = 0
ERROR = 1
USAGE = 2
REFUSED = 3
INTERRUPTED = 130
"""As a shell says it: 128 + SIGINT."""
