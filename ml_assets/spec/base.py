"""The base of every spec and record: frozen, strict, and closed to unknown fields.

Equal records are equal JSON, byte for byte, and so have one digest.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

NAME = r"^[a-z][a-z0-9_]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
"""An identifier that is safe in an asset key, a path, a SQL column and a Kubernetes label."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def unset(value: object) -> bool:
    """Return whether an optional field is left out of the JSON (``Field(exclude_if=unset)``).

    What does not say it keeps the digest that it had before the field came.
    """
    return not value


def none_or_keys(keys: type[BaseModel]) -> BeforeValidator:
    """Let a field be ``none`` or have keys; a mistake is told of the form that is meant."""

    def of_one_form(raw: object) -> object:
        if isinstance(raw, dict):
            return keys.model_validate(raw)
        if raw == "none" or isinstance(raw, keys):
            return raw
        known = ", ".join(keys.model_fields)
        raise ValueError(f"it must be 'none', or keys with their values; the keys are {known}")

    return BeforeValidator(of_one_form)


class Frozen(BaseModel):
    """Immutable typed data: no unknown fields, no silent conversion of numbers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        defer_build=True,  # at its first use: a process that loads the definitions uses few
    )


@dataclass(frozen=True)
class Misfit:
    """A field that is right by itself and does not go with another one."""

    path: tuple[str | int, ...]
    said: str


def training_misfit(name: str, said: str) -> Misfit:
    """A misfit of one of the keys of ``training``."""
    return Misfit(("training", name), f"training.{name}: {said}")


class Misfits(ValueError):
    """All of them, for a report that gives each its line."""

    def __init__(self, found: Sequence[Misfit]) -> None:
        super().__init__("; ".join(misfit.said for misfit in found))
        self.found = tuple(found)


def check_timezone(value: str) -> str:
    """Accept the name of an IANA time zone.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # "America" is a folder
        raise ValueError(f"{value!r} is not an IANA time zone") from error
    return value


Timezone = Annotated[str, AfterValidator(check_timezone)]
"""The name of an IANA time zone."""


def canonical_json(value: object) -> bytes:
    """A value as JSON with sorted keys and no spaces, in UTF-8; models by their fields' names."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest_of(value: object) -> str:
    """SHA-256 of the canonical JSON, in lower-case hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
