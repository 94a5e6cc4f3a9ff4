"""A launcher for work that nobody asks for again: a prediction, a measurement, a drill.

It runs where the settings say. Its inputs and outputs lie in a place of their own, which is deleted
when the work is over; if that fails, house-keeping deletes it. Nothing of it is signed.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ml_assets.errors import StoreAway, TrainingFailed, TrainingInterrupted
from ml_assets.launch.failure import without_log
from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.launch.next_attempt import ERROR_BUDGET, Budgets
from ml_assets.settings import Settings, read_cluster
from ml_assets.spec.training_program import SCHEMA_FILE, Ref
from ml_assets.spec.training_program.start import RESTARTS
from ml_assets.store.disk import scratch_in
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import ephemeral_place, open_objects
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.signing import Keys


@dataclass(frozen=True)
class EphemeralSession:
    """A launcher, and the store of its own that its sessions lie in."""

    launcher: LocalLauncher | KubernetesLauncher
    objects: LocalObjects

    house: LocalObjects
    """The store of the pipelines."""

    def reachable(self, ref: Ref) -> Ref:
        """An object of the pipelines, where the programs of this launcher find it.

        Raises:
            StoreAway: it lies here alone, and cannot be put there.
        """
        if isinstance(self.objects, S3Objects) and isinstance(self.house, S3Objects):
            self.house.publish(ref)
            return self.house.address(ref)
        if (Path(ref.uri) / SCHEMA_FILE).is_file():
            self.house.bring(ref)
        return ref


@contextmanager
def ephemeral_launcher(
    settings: Settings, purpose: str, retries: int = ERROR_BUDGET, restarts: int = RESTARTS
) -> Iterator[EphemeralSession]:
    """A launcher of the kind that the settings name; nothing of its work stays.

    Args:
        purpose: a word, for who finds what a killed process left.
        retries: attempts after the first, where running again may mend it.
        restarts: how often the processes of one attempt are started again here; pods have their own
            number.

    Raises:
        SettingsError: what a cluster needs is missing.
        TrainingFailed, TrainingInterrupted: of the work, with the end of its log, which is deleted.
    """
    house = open_objects(settings.objects, settings.cache)
    scratch = scratch_in(settings.scratch)
    with tempfile.TemporaryDirectory(prefix=f"{purpose}-", dir=scratch) as folder:
        here = Path(folder)
        try:
            if settings.launcher == "local":
                launcher = LocalLauncher(here, retries=retries, restarts=restarts, keys=Keys)
                yield EphemeralSession(launcher, LocalObjects(here), house)
                return
            there = S3Objects(here, ephemeral_place(settings.objects, purpose))
            budgets = Budgets(errors=retries)
            try:
                launcher = KubernetesLauncher(there, read_cluster(), Keys, budgets=budgets)
                yield EphemeralSession(launcher, there, house)
            finally:
                with suppress(StoreAway):  # the work is done, or has failed for a better reason
                    there.place.discard_below()
        except (TrainingFailed, TrainingInterrupted) as error:
            raise type(error)(without_log(str(error))) from error
