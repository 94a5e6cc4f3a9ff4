"""Exit codes of the command line."""

DONE = 0
ERROR = 1
USAGE = 2
REFUSED = 3
INTERRUPTED = 130
"""As a shell says it: 128 + SIGINT."""
