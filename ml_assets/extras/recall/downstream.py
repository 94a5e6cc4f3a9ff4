"""How far bad data spreads: a pure walk over what was made from what."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ml_assets.records.run_history import Node


@dataclass(frozen=True)
class Derivation:
    """Once that something was made, and what from."""

    output: Node
    inputs: tuple[Node, ...]


def spread(seeds: Iterable[Node], derivations: Sequence[Derivation]) -> set[Node]:
    """Everything whose content is known only from bad data: the seeds, and what they reached.

    A derivation is bad where any of its inputs is. A node is bad where it is a seed, or every
    derivation of it is bad: the same content that was also made from sound inputs is sound. One
    look at each edge: O(nodes + edges).
    """
    users: defaultdict[Node, list[int]] = defaultdict(list)
    for number, derivation in enumerate(derivations):
        for node in derivation.inputs:
            users[node].append(number)
    sound = Counter(derivation.output for derivation in derivations)
    bad = set(seeds)
    frontier, spoiled = deque(bad), bytearray(len(derivations))
    while frontier:
        for number in users.get(frontier.popleft(), ()):
            if spoiled[number]:
                continue
            spoiled[number] = 1
            output = derivations[number].output
            sound[output] -= 1
            if not sound[output] and output not in bad:
                bad.add(output)
                frontier.append(output)
    return bad


def remake(bad: Iterable[Node], head: Mapping[Node, int]) -> list[Node]:
    """The bad nodes that are there now, in the order to make them again.

    Args:
        head: what is there now -> its place in the order of the walk.
    """
    return sorted((node for node in bad if node in head), key=lambda n: (head[n], n[0], n[1] or ""))
