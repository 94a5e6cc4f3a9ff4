"""Regular expressions of a contract, which are Python's, as polars' own (Rust's).

Only what can be said to mean the same there is translated; with anything else the expectation goes
to Great Expectations' engine. Rust has no look-around and no back-references, and takes ``[[``,
``&&``, ``--`` and ``~~`` in a class for operators.
"""

import re
import warnings

_TOKEN = re.compile(
    r"""(?P<escape>\\[dws.^$*+?()\[\]{}|/\\-])   # classes that are translated, and plain signs
    |(?P<group>\((?:\?:|(?!\?))|\))
    |(?P<repeat>[*+?]\??|\{\d{1,3}(?:,\d{0,3})?\}\??)
    |(?P<set>\[\^?(?:\\[dws.^$*+?()\[\]{}|/\\-]|[^\\\[\]&~-]|(?<=\w)-(?=\w))+-?\])
    |(?P<anchor>\^|\$)
    |(?P<plain>[^\\\[\]{}()*+?^$]) """,
    re.VERBOSE,
)
_CLASSES = {r"\w": r"\p{L}\p{N}_", r"\s": r"\s\x1c-\x1f", r"\d": r"\p{Nd}"}
"""What Python means by them: ``str.isalnum``, ``str.isspace`` and ``str.isdecimal``."""
_END = r"\n?\z"
"""Python's ``$`` also matches before a newline that ends the text."""


def translated(pattern: str) -> str | None:
    """The pattern for polars; None where it may not mean the same, or is not valid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may change in Python's: it is not translated
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    found: list[str] = []
    place, last = 0, None
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None or token.lastgroup == last == "repeat":  # a*+ gives nothing back in Python
            return None
        found.append(_said_in_rust(token))
        place, last = token.end(), token.lastgroup
    return "".join(found)


def _said_in_rust(token: re.Match[str]) -> str:
    text = token[0]
    match token.lastgroup:
        case "escape":
            return f"[{_CLASSES[text]}]" if text in _CLASSES else text
        case "set":
            return re.sub(r"\\[dws]", lambda found: _CLASSES[found[0]], text)
        case "anchor":
            return _END if text == "$" else text
        case _:
            return text
