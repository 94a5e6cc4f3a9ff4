"""LightGBM itself, loaded only where a boosted model is asked for, or a clear word on why not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ml_assets.spec.training import INSTALL_LIGHTGBM
from ml_assets.training.stop import NotInstalled

_NOT_USED = ("cffi", "dask", "graphviz", "matplotlib", "pandas", "pyarrow", "sklearn")
"""LightGBM loads these where it finds them, for interfaces that the program does not use: that is
over a second of each start."""


def require_lightgbm() -> None:
    """Load the package; importing it is then cheap and certain.

    Raises:
        NotInstalled: it is missing, or the OpenMP runtime that it needs.
    """
    try:
        with _hidden(_NOT_USED):
            import lightgbm  # noqa: F401  the first import decides what it loads beside itself
    except ImportError as error:
        raise NotInstalled(
            f"model.family is 'lightgbm', and the package cannot be imported: {error}."
            f" Install it: {INSTALL_LIGHTGBM}"
        ) from error
    except OSError as error:
        raise NotInstalled(
            f"LightGBM cannot load a system library: {error}. It needs the OpenMP runtime:"
            " apt-get install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora),"
            " brew install libomp (macOS)"
        ) from error


@contextmanager
def _hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Inside, importing these fails as if they were not installed."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # pyright: ignore[reportArgumentType, reportCallIssue]  None: not importable
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
