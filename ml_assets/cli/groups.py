"""Groups of commands: listed by subject, imported on demand; mistyped names get suggestions."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from ml_assets.load_extras import COMMANDS

_SHOWN = 3
"""Names that a mistyped one is answered with."""
_SHORT = 4
"""Letters of a name in which two that are swapped leave less than 0.7 alike."""
_SENTENCE = 400
"""Characters of a command's first sentence that a list of commands shows: all of them."""


@dataclass(frozen=True)
class Later:
    """A command that is imported when somebody asks for it, with the sentence that lists it."""

    name: str
    module: str
    sentence: str

    def command(self) -> click.Command:
        """The command, imported now: the module has it by its name."""
        found = getattr(import_module(self.module), self.name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found


def of_extra(path: str, sentence: str) -> Later:
    """The command of an extra, by its words after ``ml-assets``: ``"data recall"``."""
    return Later(path.rpartition(" ")[2], COMMANDS[path], sentence)


class CommandGroup(click.Group):
    """Commands under the subjects that they belong to."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._subjects: dict[str, list[str]] = {}
        self._later: dict[str, Later] = {}

    def subject(self, title: str, *commands: click.Command | Later) -> None:
        """Add commands under a title of the help."""
        for command in commands:
            assert command.name is not None
            self._subjects.setdefault(title, []).append(command.name)
            if isinstance(command, Later):
                self._later[command.name] = command
            else:
                self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self._subjects.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        later = self._later.get(cmd_name)
        return later.command() if later else self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed = args[0]
        if (
            not typed.startswith("-")
            and not ctx.resilient_parsing
            and self.get_command(ctx, typed) is None
        ):
            raise click.UsageError(f"There is no command {typed!r}.{_meant(ctx, typed)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each subject with its commands, none of which is imported for it."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in self._subjects.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.sentence(name)) for name in names])

    def sentence(self, name: str) -> str:
        """The sentence that lists a command."""
        if name in self._later:
            return self._later[name].sentence
        return self.commands[name].get_short_help_str(_SENTENCE)


def paths(group: click.Group, context: click.Context) -> Iterator[tuple[str, ...]]:
    """The words of every command and group below a group: ``("data", "contract", "propose")``."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, *rest) for rest in paths(command, context))


def _meant(context: click.Context, typed: str) -> str:
    """Which commands, here or in another group, may be meant by a name that there is not."""
    top = context.find_root()
    assert isinstance(top.command, click.Group)
    known = [" ".join(path) for path in paths(top.command, top)]
    last = {path.rpartition(" ")[2] for path in known}
    cutoff = 0.65 if len(typed) <= _SHORT else 0.7
    near = get_close_matches(typed, sorted(last), n=_SHOWN, cutoff=cutoff)
    here = context.command_path.partition(" ")[2]
    meant = [path for word in near for path in known if path.rpartition(" ")[2] == word]
    in_here = [path for path in meant if path.rpartition(" ")[0] == here]
    whole = [path for path in meant if path.rpartition(" ")[2] == typed]
    said = (whole or in_here or meant)[:_SHOWN]
    if not said:
        return ""
    return " Did you mean " + " or ".join(f"`{top.command_path} {path}`" for path in said) + "?"
