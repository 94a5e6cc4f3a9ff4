"""Our exceptions, under one base.

Policy: an error is a small report - what happened, which object, the value seen, the rule it
broke, and what to change. Foreign errors stop at the adapter that met them and become one of
these, cause chained. A message never holds a secret. What it holds of a row, or of somebody else's
words, is ``quoted``: people ``outside`` get the message without it. If callers branch on an
outcome, return a type instead of raising (see ``store.snapshots.Published``).
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

_QUOTED = re.compile("«[^«»]*»")
_NOT_SHOWN = "…"
_OF_ONE = {"are": "is", "were": "was", "have": "has", "do": "does"}
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What acts instead of being seen: control characters (the escape of terminals is one), marks that
turn the direction of reading, characters without width."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to put behind "there is no …", with a space before it; empty: nothing is near."""
    from difflib import get_close_matches

    close = get_close_matches(word, sorted(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def install(extra: str) -> str:
    """Return the command that installs an extra of this package."""
    return (
        f"pip install -c requirements.lock -e '.[{extra}]' in the project's folder, or"
        f" pip install 'ml_assets[{extra}]'"
    )


def counted(number: int, noun: str, verb: str = "") -> str:
    """A number and its noun: 1 mistake, 2 mistakes, 2 processes, 2 queries.

    Args:
        verb: what follows, as of many: with "are", 1 row is, 2 rows are.
    """
    if number == 1:
        return f"1 {noun} {_OF_ONE.get(verb, f'{verb}s')}" if verb else f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeo":
        noun = f"{noun[:-1]}ie"
    ending = "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number:,} {noun}{ending}" + (f" {verb}" if verb else "")


def quoted(shown: object) -> str:
    """A value of a row, or somebody else's words, which may hold one, within a message: «...»."""
    return f"«{str(shown).replace('«', '‹').replace('»', '›')}»"


def visible(text: str) -> str:
    """A text whose every character is seen and none acts: ESC is written ``\\x1b``.

    The one way of a column's name, a value or somebody's words to a terminal, a page or a message.
    """
    return _UNSEEN.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def first_line(error: Exception) -> str:
    """The first line of what an error says; of one that says nothing, its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def one_line(text: str) -> str:
    """Somebody's words on one line: they forge no line of ours."""
    return visible(" ".join(text.split()))


def own_lines(text: str) -> str:
    """Somebody's words with their lines; all but the first are indented, so none forges ours."""
    return "\n    ".join(one_line(line) for line in text.splitlines() if line.strip())


def says(text: str) -> bool:
    """Return whether somebody's words hold a letter or a digit that is seen: who answers for
    something is not named by blanks, marks or fillers."""
    return any(one.isalnum() and "FILLER" not in unicodedata.name(one, "") for one in text)


def answered(what: str, author: str, reason: str) -> str:
    """Return why nobody answers for an act; empty: somebody does, for a reason.

    Args:
        what: the act, as a sentence begins with it.
    """
    if says(author) and says(reason):
        return ""
    return f"{what} needs an author and a reason, each with at least one letter or digit."


def outside(message: str) -> str:
    """A message for people outside: without what is quoted in it, and without all that may be
    quoted where an end of a quotation was cut off."""
    told = _QUOTED.sub(_NOT_SHOWN, message)
    if "»" in told:  # its begin was cut off, so it may be all that came before
        told = _NOT_SHOWN + told.rpartition("»")[2]
    begin, cut, _ = told.partition("«")
    return begin + _NOT_SHOWN if cut else told


class MlAssetsError(Exception):
    """Base of every error this project raises; its message is fit for an operator to read."""

    def __str__(self) -> str:
        return visible(super().__str__())


def is_ours(class_name: str | None) -> bool:
    """Return whether one of our errors has this name: of an error, Dagster keeps the name alone."""

    def names(cls: type) -> set[str]:
        return {cls.__name__}.union(*(names(sub) for sub in cls.__subclasses__()))

    return class_name in names(MlAssetsError)


class SettingsError(MlAssetsError):
    """The environment holds a value that cannot be used."""


class SpecError(MlAssetsError):
    """A pipeline's spec is wrong; the message lists every wrong field with file and line."""


class SourceError(MlAssetsError):
    """A source is missing, empty, or does not hold what its spec declares."""


class SchemaChanged(SourceError):
    """A source has other columns, or other types, than its spec declares."""

    def __init__(self, message: str, changes: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(message)
        self.changes = changes or {}
        """``added``, ``removed``, ``retyped``, ``reordered`` -> the columns."""


class ContractError(MlAssetsError):
    """A data contract cannot be read, or uses an expectation that is not supported."""


class DataRejected(MlAssetsError):
    """Data failed a critical expectation; nothing of it was published."""


class StorageError(MlAssetsError):
    """A snapshot or object is missing, damaged, or the store cannot be used."""


class Recalled(StorageError):
    """A table or a model was made from data that was recalled: it is kept, and not used."""


class UntrustedState(StorageError):
    """A state of the snapshot store is not signed by a key that counts; nothing is read from it."""


class StoreAway(StorageError):
    """A store does not answer, or refuses us: nothing is known to be damaged, nothing is lost."""


class DiskRefuses(StorageError):
    """A disk is full, or may not be written; what was published before stays."""


class StoreRefuses(StoreAway):
    """A store answers and refuses us, for a reason that does not pass: to ask again is no use."""


class WindowError(MlAssetsError):
    """The partitions asked for are not all there, or the window is longer than the data."""


class LeakError(MlAssetsError):
    """Training rows hold something that was not known when the decision was made."""


class FeaturesDiffer(MlAssetsError):
    """A row replayed as it would have been made when it was decided on is not the batch's row."""


class ClusterAway(MlAssetsError):
    """A cluster's API does not answer, or refuses what it allowed before: what runs goes on."""


class ClusterRefused(MlAssetsError):
    """A cluster's API refuses us, or what we asked for; asking again would not change that."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """The status of its answer; 0: it never came to one."""


class AccessRefused(ClusterRefused):
    """A cluster's API does not accept our credentials, or grants us too little."""


class DoesNotFit(MlAssetsError):
    """A training needs more memory or disk than its machine or pod has; nothing was started."""


class TrainingFailed(MlAssetsError):
    """The training program ended without a result; the message gives the reason it gave."""


class TrainingHindered(TrainingFailed):
    """A training failed for where it ran, not for what it trains: a disk is full."""


class NotSane(MlAssetsError):
    """A training set and its model failed a check before training, which therefore never began."""


class TrainingInterrupted(MlAssetsError):
    """The training program saved and stopped after a notice; running again resumes it."""


class EvidenceError(MlAssetsError):
    """A release was asked for without whole, fresh and passing evidence."""


class RefusedByGate(EvidenceError):
    """A gate refused the model: nothing was released."""


class DecidedMeanwhile(EvidenceError):
    """Another model was decided on while the gates looked at this one: they are asked again."""


class OtherCode(EvidenceError):
    """A proof was asked for, and what would make it again is not what made it."""


class CertificateRefused(EvidenceError):
    """A decision's certificate is missing, altered, foreign, or about something else."""


class NothingReleased(MlAssetsError):
    """A pipeline has no model in its stage to use, or none to go back to."""


class UnknownModel(MlAssetsError):
    """No model of a ledger, or more than one, is what was asked for."""


class RowsRefused(MlAssetsError):
    """Rows to predict are not what the release reads; the message lists every mistake."""


class UnknownGate(MlAssetsError):
    """No decision tells of a gate, or none tells enough to hold it to another bound."""


class UnknownRun(MlAssetsError):
    """No run, or more than one, is what was asked for."""


class RunFailed(MlAssetsError):
    """A run of the graph failed; the message gives the step's own error.

    Args:
        steps: keys of the steps that failed; those that were skipped for it are not among them.
    """

    def __init__(self, message: str, steps: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.steps = frozenset(steps)


class Interrupted(MlAssetsError):
    """Somebody stopped the command (Ctrl-C); what was made before stays published."""


class StateInUse(MlAssetsError):
    """Another process holds the state folder; the message names it."""


PASSES: tuple[type[MlAssetsError], ...] = (
    StoreAway,
    StoreRefuses,
    ClusterAway,
    AccessRefused,
    DiskRefuses,
    TrainingHindered,
)
"""What a step ends with that would have made its asset, had it not been hindered; of expired
credentials and missing rights, too: whoever mends them changes no source and no code."""
