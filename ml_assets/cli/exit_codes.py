"""Exit codes of the command line; wrong usage is argparse's own 2."""

DONE = 0
ERROR = 1
REFUSED = 3
INTERRUPTED = 130
"""As a shell says it: 128 + SIGINT."""
