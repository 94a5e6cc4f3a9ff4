"""One call to a lakeFS server: repeated where that helps, its refusals as our errors."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_assets.errors import MlAssetsError, StorageError, StoreAway
from ml_assets.settings import LakeFs
from ml_assets.store.retries import again

TRIES = 6
"""Tries of one call; the waits between them double from a quarter of a second: six in all."""
TIMEOUT = (10.0, 120.0)
"""Seconds to connect, and between two bytes of an answer."""
_FIRST_WAIT = 0.25
_PAGE = 500
_BUSY = {429, 500, 502, 503, 504}

Answers = Mapping[int, Any]
"""Status -> what the call returns then; a function of what the server said, or a value."""

# status -> what it means, and what to do
_REFUSALS = {
    401: ("it does not know these keys", "Set LAKEFS_ACCESS_KEY_ID and LAKEFS_SECRET_ACCESS_KEY."),
    403: (
        "it does not allow that",
        "The branch is protected, the repository read-only, or the policy of these keys too narrow:"
        " they have to read, write and tag, and to make, merge and delete branches.",
    ),
    404: ("there is no such thing", "See that the repository and the branch are there."),
    410: (
        "the data is gone, lakeFS collected it",
        "Lengthen the garbage collection rules of the repository, and make the asset again.",
    ),
    412: ("a hook of the repository stopped it", "lakeFS shows its output under Actions."),
}
_OURS = {404, 410, 412}
"""Statuses that say something of the data; all others say that the server refuses us."""


_LEADS_THERE = "See that it is up and that LAKEFS_ENDPOINT leads there."


class Lost(MlAssetsError):
    """No answer, or one that does not tell whether it was done.

    Args:
        remedy: what to do if that never ends.
    """

    def __init__(self, what: str, remedy: str = _LEADS_THERE) -> None:
        super().__init__(what)
        self.remedy = remedy


class Calls:
    """Asks one server for one repository.

    Args:
        pause: waits so many seconds between two tries.
    """

    def __init__(self, server: LakeFs, repository: str, pause: Callable[[float], None]) -> None:
        self.where = f"lakeFS at {server.endpoint} (repository {repository})"
        self._repository = repository
        self._pause = pause

    def ask(
        self,
        doing: str,
        method: Callable[..., Any],
        *which: Any,
        answers: Answers | None = None,
        look: Callable[[], Any] | None = None,
        **asked: Any,
    ) -> Any:
        """Call a method of lakefs-client on the repository.

        Args:
            doing: what it is for, in an error.
            look: where a call must be done once: finds whether it was, before it is repeated.

        Raises:
            StorageError: a refusal that says something of the data.
            StoreAway: any other, or no answer after all tries.
        """

        def call() -> Any:
            return method(self._repository, *which, _request_timeout=TIMEOUT, **asked)

        return self.again(doing, call, answers, look)

    def again(
        self,
        doing: str,
        call: Callable[[], Any],
        answers: Answers | None = None,
        look: Callable[[], Any] | None = None,
    ) -> Any:
        """The same for any call of the client, or for several that are one try."""

        def once() -> Any:
            try:
                return self._told(doing, call, answers or {})
            except Lost:
                done = look() if look else None
                if done is None:
                    raise
                return done

        try:
            return again(
                once,
                passes=lambda error: isinstance(error, Lost),
                tries=TRIES,
                first=_FIRST_WAIT,
                pause=self._pause,
            )
        except Lost as error:
            raise StoreAway(
                f"{self.where} could not {doing}: {error}, {TRIES} times. {error.remedy}"
            ) from error

    def pages(
        self, doing: str, method: Callable[..., Any], *which: Any, **asked: Any
    ) -> Iterator[Any]:
        """All results of a listing, page by page."""
        after, more = "", True
        while more:
            page = self.ask(doing, method, *which, after=after, amount=_PAGE, **asked)
            yield from page.results
            after, more = page.pagination.next_offset, page.pagination.has_more

    def _told(self, doing: str, call: Callable[[], Any], answers: Answers) -> Any:
        from lakefs_client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call()
        except ApiException as error:
            status, said = error.status or 0, _said(error.body)
            if status in answers:
                answer = answers[status]
                return answer(said) if callable(answer) else answer
            if status in _BUSY or not status:
                raise Lost(f"it answered {status} ({said})") from error
            what, remedy = _REFUSALS.get(status, (f"it answered {status}", "See the server's log."))
            refused = f"{self.where} refused to {doing}: {what} ({said}). {remedy}"
            raise (StorageError if status in _OURS else StoreAway)(refused) from error
        except (HTTPError, ConnectionError, TimeoutError) as error:
            # not its text: that may hold a presigned address
            raise Lost(f"no answer ({type(error).__name__})") from error


def _said(body: Any) -> str:
    """What the server gave as a reason, in one line."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    with contextlib.suppress(ValueError, KeyError, TypeError):  # a proxy's page, or nothing
        text = str(json.loads(text)["message"])
    return " ".join(text.split())[:200]
