"""The API server's refusals: each is a `Status` object in a real server's words."""

from typing import Any

Json = dict[str, Any]


class ApiError(Exception):
    """A refusal; `status` is the body that goes over the wire."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, wait: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.wait = wait
        """Seconds for the header Retry-After; 0: no such header."""
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if details:
            self.status["details"] = details


def qualified(group: str, plural: str) -> str:
    """`jobs.batch`, `pods`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> Json:
    details = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in details.items() if value}


def not_found(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(group, plural, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str = "") -> ApiError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version"
        " and try again"
    )
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(group, plural, name))


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return ApiError(
        403, "Forbidden", f"{subject} is forbidden: {why}", _details(group, plural, name)
    )


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    """410 Gone: a resource version or a continue token that is too old."""
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def unsupported_media(got: str) -> ApiError:
    message = f"the body of the request was in an unknown format - got: {got!r}"
    return ApiError(415, "UnsupportedMediaType", message)


Cause = tuple[str, str, str]
"""(reason, field, message), as `StatusCause` has them."""


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> ApiError:
    """422 with one cause a field; the message joins them as a real server does."""
    said = [f"{field}: {message}" for _, field, message in causes]
    joined = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    subject = f"{kind}.{group}" if group else kind
    details = _details(group, kind, name)
    details["causes"] = [
        {"reason": reason, "message": message, "field": field} for reason, field, message in causes
    ]
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {joined}', details)
