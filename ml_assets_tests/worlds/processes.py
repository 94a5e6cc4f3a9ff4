"""The programs that run below a process. Each of them may end while one looks."""

from contextlib import suppress

import psutil


def below(pid: int, *words: str) -> list[psutil.Process]:
    """Those that run, at any depth, and have each of the words in their command line."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid).children(recursive=True)
        return [one for one in found if all(word in command_line(one) for word in words)]
    return []


def command_line(process: psutil.Process) -> str:
    """Empty of a process that has ended, or that is someone else's."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
