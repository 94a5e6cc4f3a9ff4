"""The sample repository that lakeFS makes on demand: its names and sizes, content of our own."""

import functools
import io
import struct
import zlib
from collections.abc import Mapping

import polars as pl

from ml_assets_tests.servers.lakefs import commits, staging
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.repository import Repository

_IMAGES = (
    *(f"commit-change{part}.png" for part in ("-02", "")),
    "create-lakefs-branch.png",
    *(f"duckdb-editor-{number:02}.png" for number in range(2, 7)),
    *(f"duckdb-main-{number:02}.png" for number in range(1, 4)),
    *(f"hooks-{number:02}.png" for number in range(9)),
    *(f"merge{number:02}.png" for number in (1, 2)),
    "quickstart-step-01-query.png",
    "quickstart-step-02-branch.png",
    "quickstart-step-03-merge.png",
    "quickstart-step-04-rollback.png",
    "quickstart-step-05-actions.png",
    "repo-contents.png",
    "waving-axolotl-transparent-w90.gif",
)
"""Those that lakeFS has since 1.60."""
_LAKES = 100_000


def populate(catalog: Catalog, repository: Repository) -> None:
    """Commits the sample to the default branch, which is protected from then on."""
    branch = repository.default_branch
    for path, content in _files(repository.name, branch).items():
        staging.write(repository, branch, path, catalog.put(repository, content))
    wish = commits.Wish(catalog.setup.user, "Add sample data")
    commits.commit(repository, catalog.hooks, branch, wish)
    repository.settings.protected = [branch]


def _files(repository: str, branch: str) -> Mapping[str, bytes]:
    readme = f"# Welcome to {repository}\n\nIts lakes are on the branch {branch}.\n"
    images = {f"images/{name}": _image(number) for number, name in enumerate(_IMAGES)}
    return {
        "README.md": readme.encode(),
        "data/lakes.source.md": b"Made up: numbers without a lake.\n",
        "lakes.parquet": _lakes(),
        **images,
    }


@functools.cache
def _lakes() -> bytes:
    number = pl.int_range(1, _LAKES + 1, dtype=pl.Int64, eager=True)
    depth = number.hash(1).cast(pl.Float64) / 2.0**64 * 100
    lakes = {"Hylak_id": number, "Lake_name": "Lake " + number.cast(pl.String)}
    table = pl.DataFrame({**lakes, "Country": "Nowhere", "Depth_m": depth})
    file = io.BytesIO()
    table.write_parquet(file)
    return file.getvalue()


def _image(shade: int) -> bytes:
    """A PNG of one grey pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixel = zlib.compress(bytes([0, shade * 8]))
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
