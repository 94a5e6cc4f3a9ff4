"""Opens Optuna's memory of a study for one process, and cleans up after a killed one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ml_assets.errors import MlAssetsError, SettingsError, StorageError, StoreAway, quoted
from ml_assets.spec.search import SearchSpec
from ml_assets.store.home import exclusive

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.storages import BaseStorage


def opened(search: SearchSpec, pruner: "BasePruner", study: str, place: str) -> "Study":
    """The study in its storage, made where it is not there.

    Raises:
        SettingsError: the database cannot be used.
        StorageError: what is remembered of it cannot be read.
    """
    import optuna
    from optuna.exceptions import StorageInternalError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        found = optuna.create_study(
            storage=open_storage(place, study),
            study_name=study,
            pruner=pruner,
            sampler=optuna.samplers.RandomSampler(seed=search.seed),
            load_if_exists=True,
        )
        found.get_trials(False)
    except (MlAssetsError, StorageInternalError):  # the latter: the database went away
        raise
    except Exception as error:  # Optuna raises whatever a damaged journal makes it stumble over
        where = place if "://" not in place else "the database of ML_ASSETS_STUDIES"
        raise StorageError(
            f"The stored trials of study {study} in {where} cannot be read "
            f"({type(error).__name__}: {quoted(error)}): they were cut off, or something else"
            " wrote there. Delete the study's journal (or its rows in the database): finished"
            " trainings are found again."
        ) from error
    return found


@contextmanager
def held(place: str, study: str) -> Iterator[None]:
    """One process works on a study; what a killed one left goes: its lock on the journal, and half
    a line at its end, which Optuna would write on.

    Raises:
        StateInUse: another one does.
    """
    if "://" in place:  # of a database the runs of a pipeline take turns, as for everything else
        yield
        return
    folder = Path(place)
    remedy = "Wait until it is over, or stop it."
    with exclusive(folder / f"{study}.held", f"study {study}", remedy):
        (folder / f"{study}.journal.lock").unlink(missing_ok=True)
        _drop_half_a_line(folder / f"{study}.journal")
        yield


def _drop_half_a_line(journal: Path) -> None:
    if journal.is_file():
        written = journal.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.truncate(journal, whole)


@contextmanager
def answering() -> Iterator[None]:
    """Whoever uses a sampler within it is told by an error of ours that its database went away.

    Raises:
        StoreAway: a connection broke in the midst of a call. What was trained stays.
    """
    from optuna.exceptions import StorageInternalError

    try:
        yield
    except StorageInternalError as error:
        raise StoreAway(
            "The database of ML_ASSETS_STUDIES was lost during a study "
            f"({type(error.__cause__ or error).__name__}). Running trials saved their state: run "
            "the same command again when it answers, and the study continues."
        ) from error


def open_storage(place: str, study: str) -> "BaseStorage":
    """Return where Optuna remembers a study: a journal of its own in a folder, or a database.

    Raises:
        SettingsError: the database cannot be used.
    """
    from optuna.storages import RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock, JournalStorage

    if "://" in place:
        try:
            return RDBStorage(place, engine_kwargs={"pool_pre_ping": True})
        except Exception as error:
            raise SettingsError(
                f"ML_ASSETS_STUDIES names a database that cannot be used: {type(error).__name__}."
                " Is its server up, and its driver installed?"
            ) from error
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    file = str(folder / f"{study}.journal")
    return JournalStorage(JournalFileBackend(file, JournalFileSymlinkLock(file)))
