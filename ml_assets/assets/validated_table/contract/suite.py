"""A data contract: a Great Expectations suite in JSON, read without Great Expectations.

It is checked whole when it is read: a misspelt key would otherwise weaken a contract silently.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ml_assets.assets.validated_table.contract.conditions import (
    condition_columns,
    condition_mistakes,
)
from ml_assets.assets.validated_table.contract.expectation_types import (
    BY_ENGINE,
    COMPILED,
    IGNORE_ROW_IF,
    SUPPORTED,
    short_name,
)
from ml_assets.errors import ContractError, counted, did_you_mean
from ml_assets.spec.base import canonical_json
from ml_assets.spec.documents import read_json
from ml_assets.spec.sources import SourceSpec

Severity = Literal["critical", "warning"]
"""``critical`` keeps a table from being published, ``warning`` is shown and counted."""


@dataclass(frozen=True)
class Expectation:
    """One statement about a table."""

    type: str
    kwargs: Mapping[str, Any]
    severity: Severity
    check_name: str
    """Unique in its contract, stable while the kwargs are, made of ``[A-Za-z0-9_]``."""


@dataclass(frozen=True)
class Contract:
    """The contract of a table: what it must be to be published."""

    name: str
    expectations: tuple[Expectation, ...]


NO_CONTRACT = Contract("none", ())
"""The contract of a source that names none: it may be read, and no row of it is published."""


_SUITE_KEYS = {"name", "id", "expectations", "meta", "notes"}
_EXPECTATION_KEYS = {
    "type",
    "kwargs",
    "severity",
    "id",
    "meta",
    "notes",
    "description",
    "rendered_content",
}
_SEVERITIES = ("critical", "warning")
_ABOUT_COLUMN_NAMES = ("expect_table_", "expect_column_to_exist")
"""Types whose answer it is that a column is not there."""
_EDGES = ("min_value", "max_value")
_OF_COUNTS = ("_count_to_be_between", "_lengths_to_be_between")
"""Ends of the types whose bounds are compared with a number, whatever the column holds."""
_INT64_EDGE = 2**63


def load_contract(path: Path) -> Contract:
    """Read a suite as Great Expectations 1.x writes it.

    Raises:
        ContractError: the file is missing, is not such a suite, or uses what is not supported; all
            its mistakes are listed.
    """
    return read_contract(read_suite(path), path)


def contract_of(folder: Path, source: SourceSpec) -> Contract:
    """The contract that a source of a pipeline names; one that states nothing where it names none.

    Raises:
        ContractError: see ``load_contract``.
    """
    return NO_CONTRACT if source.contract is None else load_contract(folder / source.contract)


def read_contract(suite: Mapping[str, Any], where: Path | str) -> Contract:
    """The contract of a suite that is read already.

    Args:
        where: it came from, for the message.

    Raises:
        ContractError: it is not such a suite, or uses what is not supported.
    """
    contract, mistakes = sound_part(suite, where)
    if mistakes:
        raise ContractError(told_mistakes(where, mistakes))
    return contract


def sound_part(suite: Mapping[str, Any], where: Path | str) -> tuple[Contract, list[str]]:
    """The expectations of a suite that can be read, and a sentence for each mistake in the others.

    Raises:
        ContractError: it is not such a suite.
    """
    found = suite.get("expectations")
    if not isinstance(found, list) or not isinstance(suite.get("name"), str) or not found:
        raise ContractError(
            f"{where} is not an expectation suite: it needs 'name' (text) and 'expectations' (a"
            ' list with at least one): {"name": ..., "expectations": [{"type": ..., "kwargs": {}}]}'
        )
    mistakes = [f"unknown key {key!r}" for key in suite.keys() - _SUITE_KEYS]
    expectations: list[Expectation] = []
    for number, entry in enumerate(found, start=1):
        wrong = _entry_mistakes(entry)
        mistakes += [f"expectation {number} ({_title(entry)}): {problem}" for problem in wrong]
        if not wrong:
            expectations.append(_expectation(entry))
    names = [expectation.check_name for expectation in expectations]
    twice = sorted({name for name in names if names.count(name) > 1})
    mistakes += [f"{name} is stated twice: remove one" for name in twice]
    return Contract(suite["name"], tuple(expectations)), mistakes


def told_mistakes(where: Path | str, mistakes: Sequence[str]) -> str:
    """All mistakes in a contract, as one message."""
    listed = "".join(f"\n  - {mistake}" for mistake in mistakes)
    return f"{counted(len(mistakes), 'mistake')} in the contract {where}:{listed}"


def unknown_columns(contract: Contract, columns: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each expectation that names a column its table does not have."""
    known = set(columns)
    return tuple(
        f"{e.check_name} names {', '.join(map(repr, missing))}, which the table does not have."
        f"{did_you_mean(missing[0], known)}"
        for e in contract.expectations
        if (missing := [c for c in columns_of(e) if c not in known])
        and not e.type.startswith(_ABOUT_COLUMN_NAMES)
    )


def columns_of(expectation: Expectation) -> tuple[str, ...]:
    """The columns that an expectation names, those of its condition included."""
    kwargs = expectation.kwargs
    named = [kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs]
    named += kwargs.get("column_list") or kwargs.get("column_set") or ()
    named += condition_columns(kwargs.get("row_condition"))
    return tuple(dict.fromkeys(named))


def read_suite(path: Path) -> dict[str, Any]:
    """The suite that a file holds, its expectations not read yet.

    Raises:
        ContractError: the file is missing, or is no JSON object.
    """
    try:
        suite = read_json(path.read_bytes())
    except OSError as error:
        raise ContractError(
            f"The contract {path} cannot be read: {error.strerror}. A source names its contract in"
            " defs.yaml, relative to the pipeline's folder."
        ) from error
    except ValueError as error:
        raise ContractError(f"The contract {path} is not valid JSON: {error}.") from error
    if not isinstance(suite, dict):
        raise ContractError(f"The contract {path} holds a {type(suite).__name__}, not an object.")
    return suite


def _title(entry: object) -> str:
    return str(entry.get("type", "no type")) if isinstance(entry, dict) else "not an object"


def _entry_mistakes(entry: object) -> list[str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("kwargs"), dict):
        return ["an object with 'type' and 'kwargs' is expected"]
    mistakes = [f"unknown key {key!r}" for key in sorted(entry.keys() - _EXPECTATION_KEYS)]
    severity = entry.get("severity", "critical")
    if severity not in _SEVERITIES:
        mistakes.append(f"severity is {severity!r}; use one of {_SEVERITIES}")
    kind = str(entry.get("type"))
    if kind not in SUPPORTED:
        near = did_you_mean(kind, SUPPORTED)
        return [*mistakes, f"there is no such type.{near} There are {', '.join(SUPPORTED)}"]
    return [*mistakes, *_kwarg_mistakes(kind, _given(entry["kwargs"]))]


def _kwarg_mistakes(kind: str, kwargs: Mapping[str, Any]) -> list[str]:
    """Mistakes in the arguments; what only its engine judges, `ml-assets check` asks of that."""
    mistakes: list[str] = []
    if kind in COMPILED:
        rule = COMPILED[kind]
        mistakes += [
            f"unknown kwarg {k!r}; it takes {rule.known}" for k in kwargs if k not in rule.known
        ]
        mistakes += [f"kwarg {key!r} is missing" for key in rule.needs if key not in kwargs]
        if rule.one_of and not any(key in kwargs for key in rule.one_of):
            mistakes.append(f"give at least one of {rule.one_of}")
    elif "row_condition" in kwargs and BY_ENGINE[kind] == "table":
        mistakes.append("row_condition has no effect here: this is about the whole table")
    return [*mistakes, *_value_mistakes(kwargs), *_bound_mistakes(kind, kwargs)]


def _bound_mistakes(kind: str, kwargs: Mapping[str, Any]) -> list[str]:
    fits, expected = _is_bound, "a finite number, or a time as text,"
    if kind.endswith(_OF_COUNTS):
        fits, expected = _is_count, "a number of 64 bits"
    return [
        f"{key} is {kwargs[key]!r}; {expected} is expected"
        for key in _EDGES
        if not fits(kwargs.get(key, 0))
    ]


def _value_mistakes(kwargs: Mapping[str, Any]) -> list[str]:
    mistakes = [
        f"{key} is {kwargs[key]!r}; a name is expected"
        for key in ("column", "column_A", "column_B")
        if not isinstance(kwargs.get(key, ""), str)
    ]
    for key in ("column_list", "column_set"):
        names = kwargs.get(key, ["a"])
        if not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
            mistakes.append(f"{key} is {names!r}; a list of column names is expected")
    mostly = kwargs.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 <= mostly <= 1:
        mistakes.append(f"mostly is {mostly!r}; a share from 0 to 1 is expected")
    for key in ("strict_min", "strict_max", "exact_match", "or_equal"):
        if not isinstance(kwargs.get(key, False), bool):
            mistakes.append(f"{key} is {kwargs[key]!r}; true or false is expected")
    if kwargs.get("ignore_row_if", "never") not in IGNORE_ROW_IF:
        mistakes.append(f"ignore_row_if is {kwargs['ignore_row_if']!r}; use one of {IGNORE_ROW_IF}")
    if not isinstance(kwargs.get("value_set", []), list):
        mistakes.append(f"value_set is {kwargs['value_set']!r}; a list is expected")
    mistakes += [
        f"{key} is {value!r}; in JSON a number is finite"
        for key, value in kwargs.items()
        if key not in _EDGES and not _is_finite(value)
    ]
    return [*mistakes, *_more_mistakes(kwargs)]


def _more_mistakes(kwargs: Mapping[str, Any]) -> list[str]:
    mistakes: list[str] = []
    if "regex" in kwargs:
        try:
            re.compile(kwargs["regex"])
        except (TypeError, re.error) as error:
            mistakes.append(f"regex is {kwargs['regex']!r}, which is not valid: {error}")
    for key in ("value", "column_index"):
        number = kwargs.get(key, 0)
        if not isinstance(number, int) or not _is_count(number) or number < 0:
            mistakes.append(f"{key} is {number!r}; a whole number is expected")
    if "row_condition" in kwargs:
        mistakes += condition_mistakes(kwargs["row_condition"])
    return mistakes


def _is_bound(value: object) -> bool:
    return isinstance(value, str) or _number(value) is not None


def _is_count(value: object) -> bool:
    number = _number(value)
    return number is not None and abs(number) < _INT64_EDGE


def _number(value: object) -> float | None:
    """A finite number; None: it is something else, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def _is_finite(value: object) -> bool:
    """Whether every number in it is."""
    try:
        canonical_json(value)
    except ValueError:
        return False
    return True


def _given(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A kwarg of null is one that is not given; ``batch_id`` names a run of Great Expectations."""
    return {k: v for k, v in kwargs.items() if v is not None and k != "batch_id"}


def _expectation(entry: Mapping[str, Any]) -> Expectation:
    kwargs = _given(entry["kwargs"])
    return Expectation(
        type=entry["type"],
        kwargs=kwargs,
        severity=entry.get("severity", "critical"),
        check_name=_check_name(entry["type"], kwargs),
    )


def _check_name(kind: str, kwargs: Mapping[str, Any]) -> str:
    named = [kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs]
    digest = hashlib.sha256(canonical_json([kind, kwargs])).hexdigest()[:6]
    columns = "_".join(named or kwargs.get("column_list", []))
    parts = [short_name(kind), columns[:60].strip("_"), digest]
    return re.sub(r"[^A-Za-z0-9_]", "_", "__".join(part for part in parts if part))
