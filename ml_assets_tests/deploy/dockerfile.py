"""Just enough of the Dockerfile language to hold ours to the rules of the house."""

import re
from dataclasses import dataclass
from pathlib import Path

NO_BUILD_TOOLS = re.compile(r"\b(gcc|build-essential|make|git|curl|wget|pip install)\b")
KNOWN = {"ARG", "FROM", "ENV", "RUN", "COPY", "WORKDIR", "USER", "LABEL"}
MAY_BE_COPIED = {
    "ml_assets",
    "pyproject.toml",
    "requirements.lock",
    "README.md",
    "LICENSE",
}


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str


def parse(text: str) -> list[Instruction]:
    """The instructions, comments away and continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines()]


def problems(text: str) -> list[str]:
    """What breaks a rule, one line a finding."""
    found = parse(text)
    stages = [place for place, one in enumerate(found) if one.word == "FROM"]
    last = found[stages[-1] :] if stages else []
    defaults = dict(
        one.rest.split("=", 1) for one in found if one.word == "ARG" and "=" in one.rest
    )
    said = [f"{one.word} is not known here" for one in found if one.word not in KNOWN]
    said += [] if len(stages) > 1 else ["one stage: what built it is still in it"]
    for place in stages:
        base = re.sub(
            r"\$\{(\w+)\}", lambda m: defaults.get(m[1], ""), found[place].rest.split()[0]
        )
        if not re.search(r"(:[\w.-]+|@sha256:[0-9a-f]{64})$", base) or base.endswith(":latest"):
            said.append(f"the base is {base!r}")
    users = [one.rest for one in last if one.word == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        said.append(f"runs as {users[-1:] or 'root'}")
    said += [
        f"builds in the last stage: {o.rest}"
        for o in last
        if o.word == "RUN" and NO_BUILD_TOOLS.search(o.rest)
    ]
    for one in found:
        if one.word == "COPY" and "--from=build" not in one.rest:
            said += [
                f"copies {name}" for name in one.rest.split()[:-1] if name not in MAY_BE_COPIED
            ]
        if one.word in ("ENV", "ARG") and re.search("SECRET|PASSWORD|TOKEN|_KEY", one.rest):
            said.append(f"{one.word} holds a secret: {one.rest.split('=')[0]}")
        for command in one.rest.split("&&") if one.word == "RUN" else ():
            pinned = "-c requirements.lock" in command or "--no-deps" in command
            if "pip install" in command and not pinned and "'pip>=" not in command:
                said.append(f"versions are open: {command.strip()}")
    return said


def copied(file: Path) -> set[str]:
    """What a Dockerfile takes from the repository."""
    return {
        name
        for one in parse(file.read_text())
        if one.word == "COPY" and "--from=" not in one.rest
        for name in one.rest.split()[:-1]
    }
