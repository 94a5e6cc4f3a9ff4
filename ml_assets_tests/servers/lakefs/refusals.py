"""Why a request is refused: one class for each answer that a client can tell apart."""


class Refused(Exception):
    """A request that the server does not carry out: the HTTP status and the words of the body."""

    status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(Refused):
    """A name, a reference or a parameter that can never work."""

    status = 400


class PathRequired(Invalid):
    def __init__(self) -> None:
        super().__init__("missing path: required value: validation error")


class NoChanges(Invalid):
    def __init__(self, operation: str = "") -> None:
        super().__init__(f"{operation}: no changes" if operation else "no changes")


class Dirty(Invalid):
    """A branch with uncommitted changes where a clean one is needed."""

    def __init__(self, branch: str = "") -> None:
        words = "uncommitted changes (dirty branch)"
        super().__init__(f"{branch}: {words}" if branch else words)


class Unauthorized(Refused):
    status = 401

    def __init__(self) -> None:
        super().__init__("error authenticating request")


class Forbidden(Refused):
    """A protected branch, a repository that is read-only, the default branch deleted."""

    status = 403


class ReadOnly(Forbidden):
    def __init__(self) -> None:
        super().__init__("read-only repository")


class Missing(Refused):
    status = 404

    def __init__(self, what: str = "") -> None:
        super().__init__(f"{what} not found".strip())


class Conflict(Refused):
    """A name that is taken, or a commit to revert that has two parents."""

    status = 409


class MergeConflict(Refused):
    """Both sides changed a path, to different content."""

    status = 409

    def __init__(self) -> None:
        super().__init__("conflict found")


class Collected(Refused):
    """The entry is there, the bytes are not: garbage collection took them."""

    status = 410

    def __init__(self) -> None:
        super().__init__("No data")


class PreconditionFailed(Refused):
    status = 412

    def __init__(self, message: str = "Precondition failed") -> None:
        super().__init__(message)


class TooManyTries(Refused):
    """The branch moved under the request, ten times in a row."""

    status = 429

    def __init__(self) -> None:
        super().__init__("Too many attempts, try again later")


class LostRace(Refused):
    """The branch moved under an operation that is tried only once."""

    def __init__(self) -> None:
        super().__init__("predicate failed")


class NotImplementedHere(Refused):
    status = 501

    def __init__(self, message: str = "Not Implemented") -> None:
        super().__init__(message)
