"""Addresses in the environment: of pages, servers and places on S3; none holds a password."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError


def web_address(env: Mapping[str, str], name: str, default: str) -> str:
    """The http(s) address that a variable gives, without its last slash.

    Raises:
        SettingsError: it is none, or it holds a user or password.
    """
    value = (env.get(name) or default).rstrip("/")
    parts = urlsplit(value)
    if "@" in parts.netloc:
        raise SettingsError(f"{name} holds a user or password; links are shown to everybody.")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise SettingsError(f"{name} is {value!r}; expected an address such as {default}.")
    return value


def without_secrets(url: str) -> str:
    """A URL or a path without user, password, options and fragment, any of which may be secret."""
    parts = urlsplit(url)
    return (
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else url
    )


def is_s3(location: str) -> bool:
    """Whether a location is an address on S3, and no folder."""
    return location.startswith("s3://")


def s3_address(name: str, value: str, *, or_else: str = "") -> str:
    """``s3://bucket/prefix``, without its last slash.

    Args:
        or_else: what the variable may be instead, for the message.

    Raises:
        SettingsError: it is none, or it holds a user or password.
    """
    parts = urlsplit(value)
    if "@" in parts.netloc:
        raise SettingsError(
            f"{name} holds a user or password; it is shown to everybody. Credentials come from"
            " AWS_ACCESS_KEY_ID and its like."
        )
    if parts.scheme != "s3" or not parts.hostname or parts.query or parts.fragment:
        raise SettingsError(
            f"{name} names no place to store to; expected {or_else}s3://bucket/prefix (its"
            " credentials come from AWS_ACCESS_KEY_ID and its like)."
        )
    return value.rstrip("/")
