"""Which process runs which tests (``pytest -n``), and what becomes of those of one that dies."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_ROOT = Path(__file__).parents[1]
_CONTRACTS = "ml_assets_tests/assets/validated_table/test_"
_LOADS_GREAT_EXPECTATIONS = {
    f"{_CONTRACTS}{name}.py"
    for name in ("against_great_expectations", "truths_and_times", "expectations")
}
"""It takes seconds to load: one process does."""


class ByWorld(LoadFileScheduling):
    """Tests of one world go to one process, which makes it once; else those of one file do."""

    def _split_scope(self, nodeid: str) -> str:
        return _world_of(super()._split_scope(nodeid))

    def schedule(self) -> None:
        """Hand out tests; a process that comes in a dead one's place has to be told twice.

        It keeps its last test until it gets another one, or hears that there is none.
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Hand on what a dead process has left, without the test that it died of.

        The inherited method puts back units that are done, too: whoever gets one waits for ever.
        """
        left = {name: unit for name, unit in self.assigned_work.pop(node).items() if _waits(unit)}
        if not left:
            return None
        unit = next(iter(left.values()))
        died_of = next(test for test, done in unit.items() if not done)
        unit[died_of] = True
        self.workqueue.update({name: unit for name, unit in left.items() if _waits(unit)})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_of


def _waits(unit: Mapping[str, bool]) -> bool:
    return not all(unit.values())


@cache
def _world_of(file: str) -> str:
    if "/red_team/" in file:
        return "red_team"
    if file in _LOADS_GREAT_EXPECTATIONS:
        return "great_expectations"
    return "released" if "released: World" in (_ROOT / file).read_text() else file
