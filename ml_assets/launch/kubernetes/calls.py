"""One call to a cluster's API: repeated where that helps, its refusals as our errors."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ml_assets.errors import (
    AccessRefused,
    ClusterAway,
    ClusterRefused,
    MlAssetsError,
    SettingsError,
)
from ml_assets.launch.kubernetes.connection import Connection, Connections
from ml_assets.store.retries import waits

if TYPE_CHECKING:
    from tenacity import RetryCallState

BUDGET_SECONDS = 300.0
"""Within which a call is tried again: an API server that is replaced is away for a minute."""
FIRST_CONTACT_SECONDS = 30.0
"""The same before it ever answered: the address may be wrong, and that is told soon."""
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 15.0
_BUSY = {408, 429, 500, 502, 503, 504}
_UNDONE = {429, 503}
"""Statuses of a call that was not taken up: nothing was done."""
T = TypeVar("T")
Call = Callable[[Any], T]
"""Asks once, through a ``kubernetes.client.ApiClient``."""

# status -> what it means, and what to do
_REFUSALS = {
    400: ("it cannot be done", "A rule of the cluster (an admission webhook) may forbid it."),
    401: (
        "our token or certificate is missing, wrong or expired",
        "Log in again, and check the user of the current context in KUBECONFIG.",
    ),
    403: (
        "our account has no right to do that",
        "Bind the Role in deploy/ to the account that is named: it has exactly the verbs needed.",
    ),
    404: (
        "it does not exist there",
        "Check ML_ASSETS_NAMESPACE, and which cluster KUBECONFIG names.",
    ),
    409: ("it is there already", "Nothing: what is there is used."),
    413: ("the object is too large", "Shorten the spec."),
    422: ("the object is not valid", "Change what it names in cluster: of the spec."),
}


@dataclass(frozen=True)
class Trouble:
    """The reason why a call failed."""

    told: str
    status: int = 0
    final: bool = False
    """Asking again would not change it."""
    done: bool = False
    """It may have been done all the same: only its answer was lost."""
    wait: float = 0.0
    """Seconds that the server asks us to wait."""
    what: str = ""
    remedy: str = ""
    """Where the table's words for the status would mislead."""


class NoAnswer(ClusterAway):
    """A single call had no answer."""

    def __init__(self, message: str, trouble: Trouble) -> None:
        super().__init__(message)
        self.trouble = trouble


class SilentStream(NoAnswer):
    """An answer that goes on said nothing for long."""


class ClusterCalls:
    """Asks one cluster.

    Args:
        budget: seconds within which a call is tried again.
        clock: monotonic seconds.
        pause: waits so many seconds between two tries.
    """

    def __init__(
        self,
        connections: Connections,
        budget: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connections = connections
        self._budget = budget
        self._clock = clock
        self._pause = pause
        self._known = False

    @property
    def where(self) -> str:
        """The cluster, for a sentence."""
        return f"The Kubernetes API at {self._connections.now().server}"

    def ask(self, doing: str, call: Call[T], look: Call[T | None] | None = None) -> T:
        """Call until there is an answer.

        Args:
            doing: what it is for, in an error.
            look: where a call must be done once: finds whether a lost one was, before it is
                repeated.

        Raises:
            ClusterAway: no answer within the budget.
            ClusterRefused: the answer is no.
        """
        from tenacity import Retrying, retry_if_exception_type

        began, unsure, longer = self._clock(), False, waits(_FIRST_WAIT, _LONGEST_WAIT)

        def asked() -> T:
            nonlocal unsure
            try:
                if unsure and look and (found := self.once(doing, look)) is not None:
                    return found
                unsure = False
                return self.once(doing, call)
            except NoAnswer as lost:
                unsure = unsure or lost.trouble.done
                raise

        def wait(state: "RetryCallState") -> float:
            lost = state.outcome.exception() if state.outcome else None
            asked_to = lost.trouble.wait if isinstance(lost, NoAnswer) else 0.0
            return max(asked_to, longer(state))

        policy = Retrying(
            retry=retry_if_exception_type(NoAnswer),
            wait=wait,
            stop=lambda state: self._clock() - began + state.upcoming_sleep > self._limit,
            sleep=self._pause,
            reraise=True,
        )
        try:
            return policy(asked)
        except NoAnswer as lost:
            raise ClusterAway(
                f"{lost} The call was repeated for {self._limit:.0f} s. Check that the API is up,"
                " and that KUBECONFIG names it. What runs in the cluster continues."
            ) from lost

    @property
    def _limit(self) -> float:
        """Seconds within which a call is tried again."""
        return self._budget if self._known else min(self._budget, FIRST_CONTACT_SECONDS)

    def once(self, doing: str, call: Call[T]) -> T:
        """Call once, for who comes back by rules of its own. An expired token is read again first.

        Raises:
            NoAnswer: no answer.
            ClusterRefused: the answer is no.
        """
        renewed = False
        while True:
            connection = self._connections.now()
            try:
                found = call(connection.client)
            except Exception as error:
                trouble = trouble_of(error)
                if trouble is None:
                    raise
                if trouble.status != 401 or renewed:
                    raise self._told(doing, trouble) from error
                self._renew(doing, connection, trouble)
                renewed = True
            else:
                self._known = True
                return found

    def _renew(self, doing: str, failed: Connection, trouble: Trouble) -> None:
        try:
            self._connections.renew(failed)
        except SettingsError as error:  # the file is being written, where it could be read before
            told = f"{self.where} could not {doing}: {trouble.told}, and {error}"
            raise NoAnswer(told, trouble) from error

    def _told(self, doing: str, trouble: Trouble) -> MlAssetsError:
        awaited = trouble.status == 401 and self._known  # it knew us: a new token is on its way
        if not trouble.final or awaited:
            return NoAnswer(f"{self.where} could not {doing}: {trouble.told}.", trouble)
        what, remedy = _REFUSALS.get(trouble.status, ("", "See the server's log."))
        what = trouble.what or what
        said = f"{self.where} refused to {doing}: {what} ({trouble.told}). "
        return _refused(said + (trouble.remedy or remedy), trouble.status)


def told_by(status: Any) -> MlAssetsError:
    """Return what a ``Status`` in the midst of a watch means; 410: what we know is too old."""
    code, reason = status.get("code") or 0, status.get("reason") or ""
    trouble = _answered(code, reason, status.get("message") or "", 0.0)
    told = f"The watch was ended: {trouble.told}."
    return _refused(told, code) if code and trouble.final else NoAnswer(told, trouble)


def _refused(told: str, status: int) -> ClusterRefused:
    kind = AccessRefused if status in (401, 403) else ClusterRefused
    return kind(told, status)


def broken_by(error: Exception) -> MlAssetsError | None:
    """Return what ended an answer that goes on; None: the error is not the cluster's."""
    from urllib3.exceptions import ReadTimeoutError

    trouble = trouble_of(error)
    if trouble is None:
        return None
    kind = SilentStream if isinstance(error, ReadTimeoutError) else NoAnswer
    return kind(f"The answer broke off: {trouble.told}.", trouble)


def trouble_of(error: Exception) -> Trouble | None:
    """Return what a failed call means; None: the error is not the cluster's."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import ConfigException
    from urllib3 import exceptions

    if isinstance(error, ApiException) and error.status:
        return _answered(error.status, *_status_of(error.body), _retry_after(error.headers))
    if isinstance(error, ApiException):
        return _without_answer(str(error.reason))
    if isinstance(error, exceptions.NewConnectionError | exceptions.ConnectTimeoutError):
        return Trouble("it cannot be reached")
    if isinstance(error, exceptions.ProxyError):
        return Trouble("its proxy cannot be reached")
    if isinstance(error, exceptions.SSLError):
        return _without_answer(str(error))
    if isinstance(error, exceptions.HTTPError | ConnectionError | TimeoutError):
        return Trouble(f"no answer ({type(error).__name__})", done=True)
    if isinstance(error, ConfigException):  # a token that is being written
        return Trouble(f"no token ({error})")
    if isinstance(error, json.JSONDecodeError):
        return Trouble("its answer is not JSON: perhaps a proxy's page", done=True)
    return None


def _answered(status: int, reason: str, said: str, wait: float) -> Trouble:
    told = f"{status}{f' {reason}' if reason else ''}{f': {said}' if said else ''}"
    raced = status == 409 and reason == "Conflict"  # two creates met at a quota: neither was made
    if status in _BUSY or raced:
        return Trouble(told, status, done=status not in _UNDONE and not raced, wait=wait)
    if status == 403:
        return _forbidden(told, said)
    return Trouble(told, status, final=True)


def _forbidden(told: str, said: str) -> Trouble:
    """A quota and a namespace that goes are told with the status of a missing right."""
    if "exceeded quota" in said:
        remedy = "Wait until others end, or have the ResourceQuota of the namespace raised."
        return Trouble(told, 403, True, what="the quota of the namespace is spent", remedy=remedy)
    if "being terminated" in said:
        remedy = "Check ML_ASSETS_NAMESPACE."
        return Trouble(told, 403, True, what="the namespace is being deleted", remedy=remedy)
    if "system:anonymous" in said:
        what, remedy = _REFUSALS[401]
        return Trouble(told, 403, True, what=what, remedy=remedy)
    return Trouble(told, 403, True)


def _without_answer(said: str) -> Trouble:
    """A failed handshake: a certificate that is not the one expected does not change by itself."""
    if "CERTIFICATE_VERIFY_FAILED" not in said and "certificate verify failed" not in said:
        return Trouble("no secure connection", done=False)
    return Trouble(
        said.rpartition("] ")[2].partition(" (_ssl")[0].strip()[:200],
        final=True,
        what="its certificate is not one that the configuration trusts",
        remedy="Check certificate-authority of the cluster in KUBECONFIG.",
    )


def _status_of(body: Any) -> tuple[str, str]:
    """Reason and message of a Kubernetes ``Status``."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    with contextlib.suppress(ValueError, KeyError, TypeError):  # a proxy's page, or nothing
        status = json.loads(text)
        return str(status.get("reason") or ""), " ".join(str(status["message"]).split())[:500]
    return "", " ".join(text.split())[:200]


def _retry_after(headers: Any) -> float:
    """Seconds; a date, which Kubernetes never sends, counts as none."""
    try:
        return max(0.0, float((headers or {}).get("Retry-After") or 0))
    except ValueError:
        return 0.0
