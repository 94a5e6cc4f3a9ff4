"""Keeps a request for a fresh training until its model is made, so that it can continue."""

from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.records import StageRecord
from ml_assets.store.objects import write_whole


class FreshRequest(Frozen):
    """Holds what a fresh training was asked for with, and the salt that its session is named by."""

    salt: str
    as_of: str | None
    epochs: int | None

    def command(self, pipeline: str) -> str:
        """Return what takes it up again, from wherever it is asked."""
        more = [
            f" --{name} {value}"
            for name, value in (("as-of", self.as_of), ("epochs", self.epochs))
            if value is not None
        ]
        return f"ml-assets run {pipeline} --fresh{''.join(more)}"


NEW_SALT = "new"
"""Stands for the salt of a training that would be begun."""


class FreshTraining:
    """A request for a fresh training, kept until its model is made, or it is dropped."""

    def __init__(self, home: Path, pipeline: str) -> None:
        self._file = home / "fresh" / f"{pipeline}.json"
        self._pipeline = pipeline

    def salt(
        self, fresh: bool | None, as_of: str | None, epochs: int | None
    ) -> tuple[str | None, str]:
        """The salt to train by, and what to tell of a request that was not met yet; both may be
        empty.

        Args:
            fresh: True: as ``--fresh`` asks; False: as ``--no-fresh`` drops it; None: go on.
        """
        salt, said = self.expected(fresh, as_of, epochs)
        if fresh is False:
            self._file.unlink(missing_ok=True)
        if salt == NEW_SALT:
            asked = FreshRequest(salt=uuid4().hex, as_of=as_of, epochs=epochs)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, canonical_json(asked))
            return asked.salt, ""
        return salt, said

    def expected(
        self, fresh: bool | None, as_of: str | None, epochs: int | None
    ) -> tuple[str | None, str]:
        """What ``salt`` would return; nothing is written, and a new one is ``NEW_SALT``."""
        kept = self._kept()
        if fresh is False:
            return None, "the fresh training that was interrupted is dropped" if kept else ""
        if kept is not None and (kept.as_of, kept.epochs) == (as_of, epochs):
            drop = f"ml-assets run {self._pipeline} --no-fresh drops it"
            return kept.salt, f"the fresh training that was interrupted continues ({drop})"
        if fresh:
            return NEW_SALT, ""
        if kept is not None:
            again = kept.command(self._pipeline)
            return None, f"a fresh training was interrupted, and waits: {again} continues it"
        return None, ""

    def made(self, model: StageRecord | None) -> None:
        """Forget a request that this model meets."""
        kept = self._kept()
        if kept is not None and model is not None and model.attributes.get("salt") == kept.salt:
            self._file.unlink(missing_ok=True)

    def _kept(self) -> FreshRequest | None:
        try:
            return FreshRequest.model_validate_json(self._file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
