"""Disks that refuse: mounts of one process, so that root meets them too and nobody else does."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ml_assets_tests.worlds.world import World

_UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]


def on_a_full_disk(world: World, size: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ml-assets with the state folder on a new disk of a size, such as 600k."""
    home = world.settings.home
    home.mkdir(parents=True)
    return _mounted(
        world, f"mount -t tmpfs -o size={size} none {shlex.quote(str(home))}", arguments
    )


def on_a_read_only_disk(world: World, *commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run commands of ml-assets in one process, to which the state folder is read-only."""
    home = shlex.quote(str(world.settings.home))
    mount = f"mount --bind {home} {home} && mount -o remount,ro,bind {home}"
    return _mounted(world, mount, ["--each", *(shlex.join(command) for command in commands)])


def _mounted(
    world: World, mount: str, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None or subprocess.run([*_UNSHARE, "true"]).returncode:
        pytest.skip("this machine lets nobody mount anything of his own")
    command = [sys.executable, str(Path(__file__)), *arguments]
    script = f"{mount} && exec {shlex.join(command)}"
    return subprocess.run(
        [*_UNSHARE, "sh", "-c", script],
        env={**world.environment, "DAGSTER_HOME": ""},
        cwd=world.root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _main(arguments: list[str]) -> int:
    from ml_assets.cli.main import main

    if arguments[0] != "--each":
        return main(arguments)
    for command in arguments[1:]:
        print(f"$ {command}", flush=True)
        if main(shlex.split(command)):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
