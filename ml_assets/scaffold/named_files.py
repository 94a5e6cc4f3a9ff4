"""The files that a person names: one, those of a folder, or those of a pattern."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ml_assets.assets.raw_snapshot.readers.listing import list_local
from ml_assets.assets.raw_snapshot.readers.pattern import pattern_of
from ml_assets.errors import SpecError, counted
from ml_assets.spec.paths import source_path

_FORMATS = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl"}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class NamedFiles:
    """The files that a person named."""

    folder: Path
    """All of them are below it."""
    files: tuple[Path, ...]
    """In the order of their names. A link stays where it is, wherever it leads."""
    pattern: str = ""
    """Below the folder, where one was named; empty: one file, or all files of the folder."""

    @cached_property
    def relative(self) -> tuple[str, ...]:
        """Their paths below the folder."""
        return tuple(str(one.relative_to(self.folder)) for one in self.files)

    @property
    def whole(self) -> str:
        """The path, below the folder, that reads all of them as one table."""
        ends = {
            "".join(Path(one).suffixes[-2:] if one.endswith(".gz") else Path(one).suffixes[-1:])
            for one in self.relative
        }
        end = ends.pop() if len(ends) == 1 else ""
        if self.pattern:
            return f"{self.pattern}{end}" if self.pattern.endswith("*") else self.pattern
        return f"**/*{end}" if any("/" in one for one in self.relative) else f"*{end}"

    def read_too(self, path: str, sources: Path, since: str = "") -> str:
        """A file that a source would read by a path, though the pattern leaves it out; else empty.

        Args:
            path: below the folder.
            sources: the sources' root. What is not below it is copied there, and nothing else.
            since: the first partition, where the path has them.
        """
        if not (self.pattern and self.folder.is_relative_to(sources)):
            return ""
        stands, known = pattern_of(path), {*self.relative}
        for other in list_local("rows", self.folder, stands):
            key = (stands.fields(other.path) or {}).get("partition", "")
            if other.path not in known and (not since or (_DAY.match(key) and key >= since)):
                return other.path
        return ""


def named_files(what: str) -> NamedFiles:
    """The files that a person names, all of one format.

    Args:
        what: a file, a folder, or a pattern with ``*``, ``?`` or ``**``.

    Raises:
        SpecError: there are none, or they are no tables of one format.
    """
    path = Path(what).expanduser()
    pattern = ""
    if path.is_file():
        format_of(path)
        root, found = path.parent, [path]
    elif path.is_dir():
        root, found = path, tables_below(path)
    else:
        root, pattern = _pattern(path)
        found = tables_below(root, pattern) if pattern else []
    if (root / "_delta_log").is_dir():
        raise SpecError(
            f"{root} is a table of Delta Lake: its files may hold rows that were deleted. Make the"
            " pipeline from a file of its present rows, and then write the source as `kind: delta`"
            " (docs/add-a-pipeline.md, Lakehouse tables)."
        )
    if not found:
        below = "" if path.is_absolute() else f" below {Path.cwd()}"
        raise SpecError(
            f"{what}{below}: there is no such file, and no folder or pattern with files that end in"
            f" {', '.join(_FORMATS)} (or .csv.gz). A table of a database is sql:CONNECTION.table."
        )
    kinds = sorted({format_of(one) for one in found})
    if len(kinds) > 1:
        raise SpecError(
            f"{what} holds files of {counted(len(kinds), 'format')}, {', '.join(kinds)}: name"
            f" those of one, such as '{root}/*.{kinds[0]}'."
        )
    folder = root.resolve()
    return NamedFiles(
        folder, tuple(sorted(folder / one.relative_to(root) for one in found)), pattern
    )


def _pattern(path: Path) -> tuple[Path, str]:
    """The folder before the first wildcard, and the rest; empty: there is no wildcard.

    Raises:
        SpecError: no path of a source can be the rest.
    """
    wild = _first_wild(path)
    if wild == len(path.parts):
        return path, ""
    try:
        return Path(*path.parts[:wild]), source_path(str(Path(*path.parts[wild:])))
    except ValueError as error:
        raise SpecError(
            f"{path} is no pattern that a source can read: *, ? and **/ are expected, and no '..'"
            " after them. Write it with these, or put the files into a folder of their own."
        ) from error


def _first_wild(path: Path) -> int:
    wild = [n for n, part in enumerate(path.parts) if set(part) & set("*?[")]
    return wild[0] if wild else len(path.parts)


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def format_of(path: Path) -> str:
    """What kind of table a file is, by the end of its name.

    Raises:
        SpecError: it is none that we read.
    """
    found = _FORMATS.get(_suffix(path))
    if found is None:
        raise SpecError(f"{path} ends in {path.suffix!r}; expected one of {sorted(_FORMATS)}.")
    return found


def tables_below(root: Path, pattern: str = "**/*") -> list[Path]:
    """The files that a source can read, by their names: none that a dot hides."""
    return [
        one
        for one in sorted(root.glob(pattern))
        if one.is_file() and _suffix(one) in _FORMATS
        if not any(part.startswith(".") for part in one.relative_to(root).parts)
    ]
