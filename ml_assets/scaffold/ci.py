"""The files with which a repository's CI checks a pipeline: ``ml-assets new --ci``."""

import shutil
from importlib.metadata import version
from pathlib import Path

from ml_assets.errors import SpecError, counted
from ml_assets.spec.load import load_spec
from ml_assets.store.objects import write_whole

_TEMPLATE = Path(__file__).with_name("ci.yaml")
_REQUIREMENTS = """\
# A release of your own index, or a commit: ml_assets @ git+https://HOST/REPOSITORY@COMMIT
ml_assets=={version}
"""
_MOST_BYTES = 10_000_000
"""More of a source is no sample: a person chooses which rows a repository holds."""


def write_ci(folder: Path, sources: Path) -> tuple[str, ...]:
    """Write a pipeline's workflow, what it installs, and a sample of its sources, beside its room.

    What lies there already stays, but for the workflow of this pipeline.

    Returns:
        what was written, and what is left to a person, a sentence each.

    Raises:
        SpecError: it cannot be written.
    """
    room, root = folder.parent, folder.parent.parent
    text = _TEMPLATE.read_text().replace("__NAME__", folder.name)
    files = {
        f".github/workflows/{folder.name}.yaml": text.replace("__PIPELINES__", room.name),
        "ci/requirements.txt": _REQUIREMENTS.format(version=version("ml_assets")),
    }
    said = []
    try:
        for name, content in files.items():
            if name.startswith("ci/") and (root / name).exists():
                continue
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(root / name, content.encode())
            said.append(f"ci: {root / name}")
        for source in load_spec(folder).sources.values():
            path = getattr(source, "path", None) or source.kind
            said.append(_sample(sources, path, root / "ci" / "sources"))
    except OSError as error:
        raise SpecError(f"The workflow of {folder.name} cannot be written: {error}") from error
    return tuple(said)


def _sample(sources: Path, path: str, there: Path) -> str:
    """Copy what a source reads; a sentence about it."""
    files = [file for file in sources.glob(_pattern(path)) if file.is_file()]
    held = sum(file.stat().st_size for file in files)
    if not files or held > _MOST_BYTES:
        found = f"{held:,} bytes" if files else "no files"
        return f"ci: put a few rows of {path} into {there} (it has {found}; nothing is copied)"
    for file in files:
        target = there / file.relative_to(sources)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    return f"ci: {counted(len(files), 'file')} of {path} copied to {there}: commit them"


def _pattern(path: str) -> str:
    """A source's path with each of its fields standing for anything."""
    parts = path.replace("}", "{").split("{")
    return "*".join(parts[::2])
