"""Reading a pipeline's ``defs.yaml``: all mistakes at once, each with its line and its remedy."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ml_assets.errors import SpecError, counted, did_you_mean
from ml_assets.settings import Settings
from ml_assets.spec.base import NAME, Misfit, Misfits
from ml_assets.spec.documents import YAML_LOADER, DocumentError, line_and_node, read_yaml
from ml_assets.spec.gates import METRICS_OF
from ml_assets.spec.json_schema import default_at, fields_at, sections_with
from ml_assets.spec.pipeline import PipelineSpec

COMPONENT_TYPE = "ml_assets.component.TrainingPipeline"
SPEC_FILE = "defs.yaml"
OWN_ASSETS = "assets.py"
"""The file beside a spec in which a team declares assets and checks of its own."""
Location = Sequence[str | int]
SpecT = TypeVar("SpecT", bound=BaseModel)


@dataclass(frozen=True)
class Mistake:
    """One wrong field of a spec."""

    file: Path
    line: int
    key: str
    value: str
    rule: str
    remedy: str
    """Empty where the rule says it already."""

    def __str__(self) -> str:
        found = f" is {self.value}" if self.value else ""
        where = f"{self.file}:{self.line}: {self.key}{found}"
        remedy = f"\n    remedy: {self.remedy}" if self.remedy else ""
        return f"{where}\n    rule:   {self.rule}{remedy}"


def folders(room: Path) -> list[Path]:
    """The pipeline folders of a room, by name."""
    return sorted(path.parent for path in room.glob(f"*/{SPEC_FILE}"))


def pipeline_folders(settings: Settings) -> dict[str, Path]:
    """Pipeline folder name -> folder, of every room.

    Raises:
        SpecError: two rooms have a folder of one name: nobody could tell which one is meant.
    """
    found: dict[str, Path] = {}
    for folder in (folder for room in settings.pipelines for folder in folders(room)):
        first = found.setdefault(folder.name, folder)
        if first != folder:
            raise SpecError(
                f"Two folders of ML_ASSETS_PIPELINES are called {folder.name!r}: {first}, {folder}."
                " They would share tables and ledger: rename one and its 'name', or take it out."
            )
    return found


def find_pipeline(known: Mapping[str, Path], name: str) -> Path:
    """The folder of a pipeline.

    Raises:
        SpecError: there is no such pipeline.
    """
    if name not in known:
        raise SpecError(
            f"There is no pipeline {name!r}.{did_you_mean(name, known)} Known: "
            f"{', '.join(sorted(known)) or 'none'}. Give only the name of the pipeline's folder; "
            "the folder above it belongs in ML_ASSETS_PIPELINES, a list like PATH."
        )
    return known[name]


def rules_of(error: ValidationError) -> str:
    """Return what a refused value breaks, in plain words; several rules are joined."""
    return "; ".join(map(_rule, error.errors()))


def load_spec(folder: Path) -> PipelineSpec:
    """Read and check ``folder/defs.yaml``.

    Raises:
        SpecError: the file is missing, is not YAML, has wrong fields (all of them are listed), or
            names another pipeline than its folder.
    """
    spec, mistakes = check_spec(folder)
    mistakes = mistakes if spec is None else other_name(folder, spec)
    if spec is None or mistakes:
        listed = "\n".join(str(mistake) for mistake in mistakes)
        number = counted(len(mistakes), "mistake")
        raise SpecError(f"{folder.name}: {number} in {folder / SPEC_FILE}:\n{listed}")
    return spec


def other_name(folder: Path, spec: PipelineSpec) -> tuple[Mistake, ...]:
    """The mistake of a spec that is not named as its folder is: two could share one state."""
    if spec.name == folder.name:
        return ()
    file = folder / SPEC_FILE
    rule = "the name of the pipeline is the name of its folder"
    rename = f"rename the folder to {spec.name}"
    fits = re.match(NAME, folder.name)
    remedy = f"{rename}, or write 'name: {folder.name}'" if fits else rename
    return (Mistake(file, line_of(file, "name"), "name", repr(spec.name), rule, remedy),)


def check_spec(folder: Path) -> tuple[PipelineSpec | None, tuple[Mistake, ...]]:
    """The spec, or every mistake in it."""
    file = folder / SPEC_FILE
    if not file.is_file():
        rule = "a pipeline is a folder that holds this file"
        return None, (Mistake(file, 1, SPEC_FILE, "missing", rule, f"create {file}"),)
    return check_document(file, "attributes", PipelineSpec)


def check_document(
    file: Path,
    top: str,
    model: type[SpecT],
    context: Mapping[str, object] | None = None,
    beside: Callable[[Mapping[str, Any], Sequence[Location]], Sequence[Misfit]] | None = None,
) -> tuple[SpecT | None, tuple[Mistake, ...]]:
    """Return what a YAML file says under its one key ``top``, or every mistake in it.

    Args:
        context: what the model's own rules look at beside it.
        beside: the places that are wrong by themselves -> what does not fit together of the rest,
            which pydantic does not look at then.
    """
    try:
        text = file.read_bytes().decode()
        document = read_yaml(text)
    except UnicodeDecodeError as error:
        rule = f"text in UTF-8; byte {error.start} is not UTF-8"
        remedy = "save it as UTF-8; an editor may have written UTF-16"
        return None, (Mistake(file, 1, "the file", "", rule, remedy),)
    except DocumentError as error:
        return None, (Mistake(file, error.line, "the file", "", error.rule, error.remedy),)
    mistakes = _document_mistakes(file, document, top)
    if mistakes:
        return None, mistakes
    try:
        return model.model_validate(document[top], context=context), ()
    except ValidationError as error:
        place = _Place(file, yaml.compose(text, YAML_LOADER), top)  # knows the lines
        wrong = _without_emptied(error.errors())
        found = [mistake for details in wrong for mistake in _mistakes(place, details, model)]
        if beside is not None and all(details["loc"] for details in wrong):
            rest = beside(document[top], [details["loc"] for details in wrong])
            found = sorted([*found, *map(place.misfit, rest)], key=lambda one: one.line)
        return None, tuple(found)


def _without_emptied(wrong: list[ErrorDetails]) -> list[ErrorDetails]:
    """A list whose items are all wrong is too short for pydantic: only the items are mistakes."""

    def is_emptied(one: ErrorDetails) -> bool:
        at = one["loc"]
        inside = (other["loc"] for other in wrong if other is not one)
        return one["type"] == "too_short" and any(loc[: len(at)] == at for loc in inside)

    return [one for one in wrong if not is_emptied(one)]


def _document_mistakes(file: Path, document: object, top: str) -> tuple[Mistake, ...]:
    spec = top == "attributes"
    if not isinstance(document, dict) or not isinstance(document.get(top), dict):
        rule = "two keys: 'type' and 'attributes'" if spec else f"one key: '{top}'"
        return (Mistake(file, 1, "the file", "", rule, f"write the spec under '{top}:'"),)
    other = next((key for key in document if key != top), None)
    if not spec and other is not None:
        return (Mistake(file, 1, str(other), "", f"one key: '{top}'", "remove it"),)
    if spec and document.get("type") != COMPONENT_TYPE:
        value = repr(document.get("type"))
        return (Mistake(file, 1, "type", value, COMPONENT_TYPE, f"write 'type: {COMPONENT_TYPE}'"),)
    return ()


@dataclass(frozen=True)
class _Place:
    """A document whose lines are known."""

    file: Path
    root: yaml.Node
    top: str

    def misfit(self, misfit: Misfit) -> Mistake:
        line, found = line_and_node(self.root, [self.top, *misfit.path])
        value = ""
        if isinstance(found, yaml.ScalarNode):
            value = repr(found.value) if found.tag.endswith(":str") else found.value
        return Mistake(self.file, line, _key(misfit.path), value, misfit.said, "")


def _mistakes(place: _Place, details: ErrorDetails, model: type[BaseModel]) -> list[Mistake]:
    error = details.get("ctx", {}).get("error")
    if isinstance(error, Misfits):
        return [place.misfit(misfit) for misfit in error.found]
    return [_mistake(place, details, model)]


def _mistake(place: _Place, details: ErrorDetails, model: type[BaseModel]) -> Mistake:
    path = _without_tags(place, details["loc"])
    unknown = details["type"] == "extra_forbidden"
    value = "" if details["type"] == "missing" else _shown(details["input"])
    return Mistake(
        file=place.file,
        line=line_and_node(place.root, [place.top, *path])[0],
        key=_key(path),
        value=value,
        rule=_rule(details),
        remedy=_unknown_remedy(details["loc"], model)
        if unknown
        else _remedy(place, details, model),
    )


def _rule(details: ErrorDetails) -> str:
    """What holds for a field, in a plain sentence; pydantic's own words are a programmer's."""
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            return "there is no such key here"
        case "missing":
            return "the key is missing"
        case "string_pattern_mismatch":
            return f"it must be written as the pattern {context['pattern']} says"
        case "union_tag_invalid":
            key = context["discriminator"].strip("'")
            return f"there is no {key} {context['tag']!r}"
        case "union_tag_not_found":
            return f"the key {context['discriminator']} is needed: it says which one is meant"
        case "literal_error":
            return "there is no such choice"
        case "too_short":
            least = counted(context["min_length"], "item")
            return f"it must have at least {least}; it has {context['actual_length']}"
        case "string_too_short":
            return "it must not be empty"
        case kind if kind.startswith("date_"):
            return "it must be a date, such as 2024-01-31"
        case kind if kind in _WANTED:
            return f"it must be {_WANTED[kind][0]}"
        case _:
            said = details["msg"].removeprefix("Value error, ")
            return said.replace("Input should be", "it must be")


def _remedy(place: _Place, details: ErrorDetails, model: type[BaseModel]) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return f"add the key {details['loc'][-1]!r}"
        case "literal_error":
            return _choice_remedy(place, str(details["input"]), context["expected"])
        case "union_tag_invalid":
            tags = context["expected_tags"].split(", ")
            return f"use one of {', '.join(tag for tag in tags if tag != _OTHER_FORM)}"
        case "union_tag_not_found":
            return f"add the key {context['discriminator']}"
        case "float_type" if _is_number(details["input"]):
            return (
                f"write {float(details['input']):.1e}, or in full: YAML takes {details['input']}"
                " for text (in YAML, a number with an exponent needs a dot and a sign)"
            )
        case "model_type" | "model_attributes_type" if known := fields_at(details["loc"], model):
            return f"write {{key: value}}; the keys are {', '.join(sorted(known))}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return _bound_remedy(details, model)
        case kind if kind in _WANTED:
            return _WANTED[kind][1]
        case _:
            return ""


def _choice_remedy(place: _Place, said: str, choices: str) -> str:
    """What there is to choose from; of all metrics those of the task, and the nearest first."""
    _, task = line_and_node(place.root, [place.top, "label", "task"])
    name = task.value if isinstance(task, yaml.ScalarNode) else ""
    fitting = next((metrics for known, metrics in METRICS_OF.items() if known == name), ())
    if not fitting or "'bits_per_byte'" not in choices:
        return f"use {'one of ' * (' or ' in choices)}{choices}"
    near = " or ".join(map(repr, difflib.get_close_matches(said, fitting, n=2, cutoff=0.5)))
    asked = f"did you mean {near}? " if near else ""
    return f"{asked}a {name} task has {', '.join(map(repr, fitting))}"


def _bound_remedy(details: ErrorDetails, model: type[BaseModel]) -> str:
    """What to write in place of a number that is too small or too large."""
    ((name, bound),) = details.get("ctx", {}).items()
    if not isinstance(bound, int | float):
        return ""
    whole, step = isinstance(bound, int), {"gt": 1, "lt": -1}.get(name, 0)
    number = f"{bound + step if whole else bound:g}"
    side = "more" if name in ("gt", "ge") else "less"
    if step and not whole:
        said = f"write a number {'above' if step > 0 else 'below'} {number}"
    else:
        said = f"write {number} or {side}"
    default = default_at(details["loc"], model)
    return said if default is None else f"{said}; without the key it is {default}"


_MANY_SECTIONS = 3
"""So many may hold a key: to name them all is no help."""
_OTHER_FORM = "'time_shares'"
"""The name that ``kind: time`` with shares has in the program; nobody writes it."""
_WHOLE = ("a whole number", "write it in digits, such as 20")
_TEXT = ("text", "put it in quotes: YAML reads it as something else")
_LIST = ("a list", "write [one, two]")
_KEYS = ("keys with their values", "write {key: value}, or each key on a line of its own below")
_WANTED = {
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": ("a number", "write it in digits, such as 0.5"),
    "bool_type": ("true or false", "write true or false, without quotes"),
    "string_type": _TEXT,
    "time_delta_type": ("a duration", "write a number and a unit, such as '10 days' or '6h'"),
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _KEYS,
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
}
"""Kind of mistake -> what is expected, and how to write it."""


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str) and isfinite(float(value))
    except ValueError:
        return False


def _unknown_remedy(location: Sequence[str | int], model: type[BaseModel]) -> str:
    name = str(location[-1])
    if model is PipelineSpec and tuple(location) == ("search",):
        return "write it into search.yaml, a file beside this one"
    known = sorted(fields_at(location[:-1], model) - {name})
    close = [*difflib.get_close_matches(name, known, n=1, cutoff=0.7)]
    if close or len(name) > 2:
        close += [one for one in known if name in one.split("_") and one not in close]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if name in fields_at((), model):
        return f"write {name!r} at the top of the spec, not under {location[0]!r}"
    sections = sections_with(name, model) if len(location) == 1 else []
    if 0 < len(sections) < _MANY_SECTIONS:
        return f"write it under {' or '.join(map(repr, sections))}"
    return f"remove it: no such field; there are {', '.join(known)}"


def _key(path: Sequence[str | int]) -> str:
    """A key as people write it: ``gates[1].metric``."""
    written = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return written.removeprefix(".") or "the spec"


def _shown(value: object) -> str:
    """The value on a line of its own length; a mapping is read in the file."""
    if isinstance(value, Mapping):
        return ""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def line_of(file: Path, key: str) -> int:
    """The line of a spec's key, such as ``sources.orders.contract``, or of what is above it."""
    path = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", key)]
    root = yaml.compose(file.read_text(encoding="utf-8"), YAML_LOADER)
    return line_and_node(root, ["attributes", *path])[0]


def _without_tags(place: _Place, location: Sequence[str | int]) -> list[str | int]:
    """Pydantic puts the tag of a union ('files', 'bound') in the path; the file has no such key."""
    path, last = list[str | int](), len(location) - 1
    for number, part in enumerate(location):
        node = line_and_node(place.root, [place.top, *path])[1]
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        keys = {key.value: value.value for key, value in pairs}
        tags = [tag for tag in (keys.get("kind"), keys.get("family")) if isinstance(tag, str)]
        own = keys.keys() - {*tags}  # a key may be called like a tag, and a source "kind"
        missing = number == last and part not in tags
        if missing or isinstance(part, int) or part in own:
            path.append(part)
    return path
