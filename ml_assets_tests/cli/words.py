"""Where a text names a command of ml-assets, and whether there is one that takes what it shows."""

import ast
import re
import shlex
from collections.abc import Iterator

import click

from ml_assets.cli.groups import paths
from ml_assets.cli.main import commands

TOP = click.Context(commands, info_name="ml-assets")
_NAMED = re.compile(r"(?<![\w/-])(?:[\w.$()]+/)*ml-assets ((?:[^`\n#&;<]|\\\n)+)")
_NOT_OURS = re.compile(r"(namespace|of) ml-assets ")
_FILLED = "«»"
"""What stands in a message for a value."""
_SPAN = re.compile(r"`([^`\n]+)`")


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The words of each command and group, and what they lead to."""
    for path in paths(commands, TOP):
        found: click.Command = commands
        for word in path:
            assert isinstance(found, click.Group)
            below = found.get_command(TOP, word)
            assert below is not None, path
            found = below
        yield path, found


KNOWN = dict(every_command())


def wrong_in_a_page(page: str) -> list[str]:
    """What a page of Markdown shows of ml-assets, and the command line would refuse.

    A line of a shell block has to be a whole command; a span of code names a command and options.
    """
    blocks, spans = _shell_and_spans(page)
    wrong = [_refusal(line) for line in blocks]
    wrong += [trouble for span in spans for trouble in wrong_names(span)]
    return [one for one in wrong if one]


def wrong_names(text: str) -> list[str]:
    """Each command that a text names and that is not there, or lacks an option that it shows."""
    found: list[str] = []
    for named in _NAMED.finditer(text):
        if _NOT_OURS.search(text[max(0, named.start() - 14) : named.end()]):
            continue
        found += [trouble for trouble in map(_trouble, _alternatives(named[1])) if trouble]
    return found


def wrong_in_code(source: str) -> list[str]:
    """The same in every string of a Python module, with its parts put together."""
    return [trouble for text in _strings(ast.parse(source)) for trouble in wrong_names(text)]


def _shell_and_spans(page: str) -> tuple[list[str], list[str]]:
    blocks, prose, fence = list[str](), list[str](), ""
    for line in page.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip()
        elif fence == "```sh":
            blocks.append(line)
        elif not fence:
            prose.append(line)
    spans = _SPAN.findall("\n".join(prose).replace("\\|", "|"))
    return blocks, spans


def _refusal(line: str) -> str | None:
    """Why a line of shell would be wrong usage; None: it is not, or it is no command of ours."""
    words = shlex.split(line, comments=True)
    while words and "=" in words[0]:  # the environment
        words = words[1:]
    if not words or words[0].rpartition("/")[2] != "ml-assets":
        return None
    asked = words[1:]
    for end in ("|", "&", "&&", ">"):
        asked = asked[: asked.index(end)] if end in asked else asked
    try:
        context = commands.make_context("ml-assets", [*asked])
        while isinstance(context.command, click.Group):
            rest = [*context._protected_args, *context.args]
            name, below, rest = context.command.resolve_command(context, rest)
            assert below is not None
            context = below.make_context(name, rest, parent=context)
    except click.UsageError as error:
        return f"{line.strip()}: {error.format_message()}"
    return None


def _alternatives(words: str) -> list[list[str]]:
    """``data list|diff KEY`` is two commands."""
    whole: list[list[str]] = [[]]
    for word in re.split(r"[ \n\\]+", words):
        if word in ("|", ">"):
            break
        bare = word.strip("[]()*'\"…")
        either = bare.split("|") if re.fullmatch(r"[a-z]+(\|[a-z]+)+", bare) else [bare]
        whole = [[*before, one] for before in whole for one in either]
        if bare != bare.rstrip(".,:;?!)"):
            break  # a sentence ends here
    return whole


def _trouble(words: list[str]) -> str | None:
    words = [word.rstrip(".,:;?!)") for word in words]
    if words[0].startswith(_FILLED):
        return None
    path: tuple[str, ...] = ()
    while (*path, words[len(path)] if len(path) < len(words) else "") in KNOWN:
        path = (*path, words[len(path)])
    said = " ".join(words)
    command = KNOWN.get(path)
    rest = words[len(path) :]
    if command is None or (isinstance(command, click.Group) and rest and rest[0][:1].isalpha()):
        return f"there is no `ml-assets {said}`"
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    shown = [re.split("[=«]", word)[0] for word in rest if word.startswith("--")]
    missing = [option for option in shown if option not in known | {"--help"}]
    return f"`ml-assets {said}` has no {' '.join(missing)}" if missing else None


def _strings(tree: ast.AST) -> Iterator[str]:
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= set(node.values)
            parts = (one.value if isinstance(one, ast.Constant) else _FILLED for one in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield node.value
