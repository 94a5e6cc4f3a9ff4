"""Who calls (bearer tokens, which may expire) and what a Role lets them do."""

import secrets
import threading
from dataclasses import dataclass

from ml_assets_tests.servers.kubernetes import errors
from ml_assets_tests.servers.kubernetes.clock import Clock
from ml_assets_tests.servers.kubernetes.errors import Json


@dataclass(frozen=True)
class User:
    name: str
    rules: list[Json] | None
    """A Role's `rules`; None: may do everything."""
    namespace: str
    """Where the rules hold; empty: everywhere (a ClusterRole)."""
    expires: float | None
    """In the cluster's seconds."""


@dataclass(frozen=True)
class Wish:
    """What a call wants, in RBAC's words."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str

    @property
    def what(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Access:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._users: dict[str, User] = {}

    def token(
        self,
        user: str = "admin",
        *,
        rules: list[Json] | None = None,
        namespace: str = "",
        seconds: float | None = None,
    ) -> str:
        """A new bearer token; `seconds` of the cluster's time until it is worth nothing."""
        text = secrets.token_urlsafe(24)
        expires = None if seconds is None else self._clock.seconds() + seconds
        with self._lock:
            self._users[text] = User(user, rules, namespace, expires)
        return text

    def revoke(self, token: str) -> None:
        with self._lock:
            self._users.pop(token, None)

    def user_of(self, header: str | None) -> User:
        """401 for a token that is missing, unknown or too old."""
        kind, _, token = (header or "").partition(" ")
        with self._lock:
            user = self._users.get(token.strip()) if kind.lower() == "bearer" else None
        if user is None or (user.expires is not None and self._clock.seconds() >= user.expires):
            raise errors.unauthorized()
        return user

    def check(self, user: User, wish: Wish) -> None:
        """403 in a real server's words where no rule grants it."""
        if allowed(user, wish):
            return
        where = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {wish.verb} resource "{wish.what}"'
            f' in API group "{wish.group}" {where}'
        )
        raise errors.forbidden(wish.group, wish.resource, wish.name, why)


def allowed(user: User, wish: Wish) -> bool:
    if user.rules is None or wish.resource == "selfsubjectaccessreviews":  # everyone may ask
        return True
    if user.namespace and wish.namespace != user.namespace:
        return False
    return any(_grants(rule, wish) for rule in user.rules)


def _grants(rule: Json, wish: Wish) -> bool:
    def has(field: str, value: str) -> bool:
        return value in (rule.get(field) or []) or "*" in (rule.get(field) or [])

    named = rule.get("resourceNames") or []
    return (
        has("verbs", wish.verb)
        and has("apiGroups", wish.group)
        and has("resources", wish.what)
        and (not named or wish.name in named)
    )
