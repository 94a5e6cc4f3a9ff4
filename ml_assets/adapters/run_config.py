"""The configuration that a run may have: plain values, and no names of variables.

The fields of a ``dg.Config`` also accept ``{env: NAME}``, which the run's process looks up in its
own environment, where its keys and passwords are.
"""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Self, get_args

import dagster as dg
from pydantic import BaseModel, ConfigDict


class RunConfig(BaseModel):
    """The configuration of an asset or an op; a field's description is its line in the form."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def form(cls) -> dict[str, dg.Field]:
        """Return the ``config_schema`` of the asset or op: text stays text, a number a number."""
        return {
            name: dg.Field(
                _plain(field.annotation),
                description=field.description,
                is_required=field.is_required(),
                **({} if field.is_required() else {"default_value": field.default}),
            )
            for name, field in cls.model_fields.items()
        }

    @classmethod
    def of(cls, context: dg.OpExecutionContext | dg.AssetExecutionContext) -> Self:
        """Return what the run says."""
        return cls.model_validate(context.op_execution_context.op_config)


def _plain(annotation: Any) -> Any:
    """``str``, ``int``, ``float``, ``bool``, or one of them or none."""
    optional = isinstance(annotation, UnionType) and NoneType in get_args(annotation)
    wanted = [one for one in get_args(annotation) if one is not NoneType]
    plain = wanted[0] if optional and len(wanted) == 1 else annotation
    if plain not in (str, int, float, bool):
        raise TypeError(
            f"{annotation} is not a plain value: a run's configuration can hold only those."
        )
    return dg.Noneable(plain) if optional else plain


def environment_fields(schema: Any, name: str = "config") -> Iterator[str]:
    """Each field of a configuration (Dagster's type of it) that takes ``{env: NAME}``."""
    fields = getattr(schema, "fields", {})
    if set(fields) == {"env"}:
        yield name
        return
    for key, field in fields.items():
        yield from environment_fields(field.config_type, f"{name}.{key}")
    for part in ("inner_type", "scalar_type", "non_scalar_type"):  # of lists, options, unions
        if hasattr(schema, part):
            yield from environment_fields(getattr(schema, part), name)
