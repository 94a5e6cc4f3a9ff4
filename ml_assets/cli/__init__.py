"""The command line: each command parses, calls one action, and prints."""

import sys
from types import TracebackType

WORDS_OF_AN_INTERRUPT = "interrupted: what was made is kept; run again to continue"
_before = sys.excepthook


def _in_words(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Answer Ctrl-C in words from the first import on, before ``main`` is there to do it."""
    if issubclass(kind, KeyboardInterrupt):
        print(WORDS_OF_AN_INTERRUPT, file=sys.stderr)
    else:
        _before(kind, error, trace)


sys.excepthook = _in_words
