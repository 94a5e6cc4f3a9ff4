"""Decides what is due: a pure comparison of records with their current inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ml_assets.errors import counted
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.registered import MADE_ELSEWHERE
from ml_assets.spec.schema_change import COLUMNS, declared_changes
from ml_assets.store.layout import Address, run_key
from ml_assets.store.pipeline_context import Winner

MAKE = "make"
"""Begins a line that says what is made, and why."""
RECALLED = "recalled"
"""Attribute of a record that a recall reached: the recall's id. It is put there when it is read."""


@dataclass(frozen=True)
class Node:
    """One (asset, partition): the code that makes it and what it is made from."""

    address: Address
    code_version: str
    inputs: tuple[Address, ...] = ()
    fixed: tuple[InputVersion, ...] = ()
    """Inputs whose version is known without a record: the receipt of a source."""
    salt: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns of a source's stages: column -> type, as it is declared now."""
    winner: Winner | None = None
    """Whose values a model is trained by; None: the spec's own."""
    step: str = ""
    """What makes it together with others: they are due together. Empty: it is made alone."""


@dataclass(frozen=True)
class Item:
    """A node, and whether it has to be made."""

    node: Node
    due: bool
    reason: str


@dataclass(frozen=True)
class Plan:
    """Every node in the order of the graph."""

    items: tuple[Item, ...]

    @property
    def due(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.due)

    def without(self, address: Address, reason: str) -> "Plan":
        """The same, but for one thing that is not made, whatever its inputs are."""
        return Plan(
            tuple(
                Item(item.node, False, reason) if item.node.address == address else item
                for item in self.items
            )
        )

    def with_due(self, address: Address, reason: str, salt: str) -> "Plan":
        """The same, but that one thing is made in any case.

        Args:
            salt: tells this request for it from another one, of the same inputs.
        """

        def wanted(item: Item) -> Item:
            node = replace(item.node, salt=salt)
            return Item(node, True, item.reason if item.due else reason)

        return Plan(
            tuple(wanted(item) if item.node.address == address else item for item in self.items)
        )

    def summary(self) -> list[str]:
        """One line per asset: what is due and why, what is skipped and why."""
        by_key: dict[str, list[Item]] = {}
        for item in self.items:
            by_key.setdefault(item.node.address.key, []).append(item)
        return [line for key, items in by_key.items() for line in _lines(key, items)]


def plan(nodes: Sequence[Node], records: Mapping[Address, StageRecord]) -> Plan:
    """Compare each node's run key with its record's; what follows from a due node is due.

    Args:
        nodes: in topological order.
        records: the last whole materialization of each address.
    """
    due: set[Address] = set()
    items: list[Item] = []
    for node in nodes:
        reason = _why_due(node, records, due) or _made_with(node, nodes, records, due)
        if reason:
            due.add(node.address)
        items.append(Item(node, bool(reason), reason or "same code, same inputs"))
    return Plan(tuple(items))


def contiguous(keys: Sequence[str], order: Sequence[str]) -> list[tuple[str, str]]:
    """Group partition keys into ranges (first, last) that leave no gap in ``order``."""
    place = {key: number for number, key in enumerate(order)}
    ranges: list[tuple[str, str]] = []
    for key in sorted(keys, key=place.__getitem__):
        if ranges and place[ranges[-1][1]] + 1 == place[key]:
            ranges[-1] = (ranges[-1][0], key)
        else:
            ranges.append((key, key))
    return ranges


def _why_due(node: Node, records: Mapping[Address, StageRecord], due: set[Address]) -> str:
    record = records.get(node.address)
    if record is None:
        return "never made"
    if RECALLED in record.attributes:
        return f"it is recalled ({record.attributes[RECALLED]})"
    if any(address in due for address in node.inputs):
        return "an input is due"
    versions = [*node.fixed]
    for address in node.inputs:
        source = records.get(address)
        if source is None:
            return f"{address} was never made"
        versions.append(
            InputVersion(
                key=address.key,
                partition=address.partition,
                version=source.data_version,
                commit=None,
            )
        )
    if node.salt and record.attributes.get("salt") != node.salt:
        return "asked for again"
    salt = record.attributes.get("salt")
    if record.run_key == run_key(node.address, node.code_version, versions, salt):
        return ""
    if retyped := column_changes(node, record):
        return f"its declared columns changed ({retyped})"
    if record.code_version == node.code_version:
        return "an input changed"
    if record.code_version == MADE_ELSEWHERE:
        return "the last candidate was made elsewhere"
    what = "contract" if node.address.stage == "validated_table" else "part of the spec"
    return _other_winner(node, record) or f"its code or its {what} changed"


def _made_with(
    node: Node, nodes: Sequence[Node], records: Mapping[Address, StageRecord], due: set[Address]
) -> str:
    """Why the rest of its step is due: a process may die when only a part of it is published."""
    if not node.step:  # as of every partition
        return ""
    together = (one for one in nodes if one.step == node.step and one is not node)
    other = next((one for one in together if _why_due(one, records, due)), None)
    return f"it is made together with {other.address}" if other else ""


def _other_winner(node: Node, record: StageRecord) -> str:
    """Which search changed the settings of a model, in words; empty: none did."""
    was: Mapping[str, Any] | None = record.attributes.get("search")
    won = node.winner
    if (won and dict(won.values)) == (was and was["values"]):
        return ""
    if won:
        return (
            f"it is trained with the settings of a search's winner: trial {won.trial} of "
            f"{won.study}"
        )
    return (
        "it is trained with its spec's own settings again, and no longer with those of a "
        "search's winner"
    )


def column_changes(node: Node, record: StageRecord) -> str:
    """Return how the declared columns differ from those that a record was made with, in words."""
    was: Mapping[str, str] | None = record.attributes.get(COLUMNS)
    return declared_changes(was, node.columns) if was and node.columns else ""


def retyped(found: Plan, records: Mapping[Address, StageRecord]) -> list[str]:
    """Return what other columns of a source cost: what is made again, in sentences."""
    tables: dict[str, list[StageRecord]] = {}
    for item in found.due:
        record = records.get(item.node.address)
        if record is not None and column_changes(item.node, record):
            tables.setdefault(record.key, []).append(record)
    follows = [i.node.address for i in found.due if i.node.address in records]
    after = sum(1 for one in follows if one.key not in tables)
    rows = {key: sum(one.rows or 0 for one in made) for key, made in tables.items()}
    return [
        f"{key}: {counted(len(made), 'partition')} with {counted(rows[key], 'row')} made again "
        f"because their columns changed, and {counted(after, 'table')} after them. The model is "
        "trained again if their rows change"
        for key, made in tables.items()
    ]


def _lines(key: str, items: Sequence[Item]) -> list[str]:
    lines: list[str] = []
    for due in (True, False):
        reasons: dict[str, list[str]] = {}
        for item in items:
            if item.due == due:
                reasons.setdefault(item.reason, []).append(item.node.address.partition or "")
        for reason, partitions in reasons.items():
            span = _span(sorted(partitions))
            lines.append(f"{MAKE if due else 'skip'}  {key}{span}: {reason}")
    return lines


def _span(partitions: Sequence[str]) -> str:
    if partitions == [""]:
        return ""
    if len(partitions) == 1:
        return f" [{partitions[0]}]"
    return f" [{partitions[0]} .. {partitions[-1]}: {counted(len(partitions), 'partition')}]"
