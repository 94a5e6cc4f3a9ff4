"""The one way to read YAML and JSON that people write, without silent losses.

A duplicate key would keep only its last value, and a document may be made to hurt its reader:
anchors that multiply, nesting that ends the process. Both are an error with its line, found in one
pass over the text's events, before any value is made.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 100
MAX_VALUES = 100_000
"""Written out, every alias in full: a spec of two thousand columns has a fifth of it."""
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:\n]')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
HALF_A_SIGN = "a text has half a character: one of \\ud800 to \\udfff without its other half"
YAML_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NO_VALUE = (ValueError, ArithmeticError, LookupError, AttributeError)
"""What the loader raises for a text that looks like a date or a number, and is none."""


class DocumentError(ValueError):
    """A document that is not read, and the line that shows why."""

    def __init__(self, line: int, rule: str, remedy: str) -> None:
        super().__init__(f"line {line}: {rule}; {remedy}")
        self.line, self.rule, self.remedy = line, rule, remedy


class RepeatedKey(DocumentError):
    """A key stands twice; the last one would have won."""


class _Loader(YAML_LOADER):
    """Knows the line of a date or a number that there is not: 2023-02-29."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            found = super().construct_object(node, deep)
            if isinstance(found, int):
                repr(found)  # Python writes no number of thousands of digits
        except _NO_VALUE as error:
            rule = f"{node.value[:60]!r} is read as a date or a number, but is not a valid one"
            remedy = "correct it; or put it in quotes, where it is text"
            raise DocumentError(node.start_mark.line + 1, rule, remedy) from error
        return found


def line_and_node(root: yaml.Node, path: Sequence[str | int]) -> tuple[int, yaml.Node | None]:
    """The line of the key that a path ends at, or of the nearest thing above; what lies there."""
    line, node = root.start_mark.line, root
    for part in path:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            found = next(((one, one) for one in node.value[part : part + 1]), None)
        if found is None:
            return line + 1, None
        line, node = found[0].start_mark.line, found[1]
    return line + 1, node


def read_yaml(text: str) -> Any:
    """The values of a YAML document, by a safe loader: no tag makes anything but plain values.

    Raises:
        DocumentError: it is no YAML, has a key twice, holds too much, or a date that there is not.
    """
    try:
        _hold_to_rules(text)
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _no_yaml(error) from error


def read_json(text: str | bytes) -> Any:
    """The values of a JSON document.

    Raises:
        DocumentError: it is no JSON, has a key twice, is nested too deeply, names text that is
            none, or a number of thousands of digits.
    """
    try:
        found = json.loads(text, object_pairs_hook=_unique)
        half = half_a_sign(_as_text(text), found)
    except json.JSONDecodeError as error:
        raise DocumentError(error.lineno, error.msg, f"look at column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(1, "it is not UTF-8 text", "save it as UTF-8") from error
    except RecursionError as error:
        raise _too_deep(1) from error
    except _Twice as twice:
        raise _first_repeated(_as_text(text)) from twice
    except ValueError as error:  # Python's bound on the digits of a whole number
        raise DocumentError(1, "a number has thousands of digits", "write it shorter") from error
    if half:
        before = _SURROGATE.split(_as_text(text), maxsplit=1)[0]
        raise DocumentError(before.count("\n") + 1, HALF_A_SIGN, "write the whole character")
    return found


def half_a_sign(text: str, value: object) -> bool:
    """Return whether a value that was read from JSON holds what no UTF-8 can say."""
    plain = text.isascii() and "\\ud" not in text and "\\uD" not in text  # most are: no search
    if plain or not _SURROGATE.search(text):
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _as_text(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    return text.decode(json.detect_encoding(text), "surrogatepass")  # as json reads it


@dataclass
class _Open:
    """A mapping or a sequence of YAML that has not ended."""

    anchor: str | None
    keys: dict[str, int] | None
    """Key -> line, of a mapping."""
    values: int = 1
    awaits_value: bool = False

    def takes(self, size: int) -> None:
        self.values += size
        self.awaits_value = not self.awaits_value


@dataclass
class _Rules:
    """What is known of a document while its events go by."""

    open: list[_Open] = field(default_factory=lambda: [_Open(None, None)])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Anchor -> how many values stand for it."""

    def meet(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            keys = {} if isinstance(event, yaml.MappingStartEvent) else None
            self.open.append(_Open(event.anchor, keys))
            if len(self.open) > MAX_DEPTH:
                raise _too_deep(line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            ended = self.open.pop()
            self._add(ended.values, ended.anchor, line)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.sizes:
                raise DocumentError(line, f"*{event.anchor} contains itself", "write it out")
            self._add(self.sizes[event.anchor], None, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._key(event.value, line)
            self._add(1, event.anchor, line)

    def _key(self, name: str, line: int) -> None:
        inner = self.open[-1]
        if inner.keys is None or inner.awaits_value:
            return
        if name in inner.keys:
            raise _repeated(name, inner.keys[name], line)
        inner.keys[name] = line

    def _add(self, size: int, anchor: str | None, line: int) -> None:
        if anchor is not None:
            self.sizes[anchor] = size
        self.open[-1].takes(size)
        if sum(one.values for one in self.open) > MAX_VALUES:
            rule = f"with every alias in full it holds more than {MAX_VALUES:,} values"
            raise DocumentError(line, rule, "write it without anchors, or shorter")


def _hold_to_rules(text: str) -> None:
    rules = _Rules()
    for event in yaml.parse(text, YAML_LOADER):
        rules.meet(event)


def _no_yaml(error: yaml.YAMLError) -> DocumentError:
    mark = getattr(error, "problem_mark", None)
    said = (getattr(error, name, None) for name in ("context", "problem"))
    rule = f"valid YAML; {': '.join(filter(None, said))}"
    remedy = "look at this line and the one above: an indent, a bracket, a quote or a colon"
    return DocumentError(mark.line + 1 if mark else 1, rule, remedy)


class _Twice(Exception):
    """An object of JSON has a key twice; the parser does not know the lines."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _first_repeated(text: str) -> RepeatedKey:
    """Find it in JSON: there a colon outside of a string follows a key, and nothing else."""
    line, said, said_at = 1, "", 1
    objects: list[dict[str, int]] = []
    for token in _JSON_TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token in "{[":
            objects.append({})
        elif token in "}]":
            objects.pop()
        elif token != ":":
            said, said_at = json.loads(token), line
        elif said in objects[-1]:
            return _repeated(said, objects[-1][said], said_at)
        else:
            objects[-1][said] = said_at
    raise AssertionError("the parser saw a key twice")


def _repeated(key: str, first: int, second: int) -> RepeatedKey:
    where = f"on line {first} and on line {second}" if first < second else f"on line {first}"
    remedy = "keep one of the two, with everything that belongs to it"
    return RepeatedKey(second, f"the key {key[:60]!r} is there twice: {where}", remedy)


def _too_deep(line: int) -> DocumentError:
    return DocumentError(
        line, f"it is nested more than {MAX_DEPTH} levels deep", "write it with fewer levels"
    )
