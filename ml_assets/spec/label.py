"""The label: a column of the features' rows, or its value a while later."""

from datetime import timedelta
from typing import Any, Self, assert_never

from pydantic import Field, field_validator, model_validator

from ml_assets.spec.automation import Duration, duration_text, parse_duration
from ml_assets.spec.base import Frozen, unset
from ml_assets.spec.training import Task


class LabelSpec(Frozen):
    """The value to predict. A null is an unknown outcome, and is not trained on."""

    column: str
    """With ``ahead``, the column whose later value is the label; the label's own column is then
    named for both: ``pm25`` with ``6h`` is ``pm25_in_6h``."""
    task: Task
    classes: tuple[str, ...] = Field(default=(), strict=False)
    """Multiclass: the labels, in the order of the predictions. Whole numbers are taken as text:
    declare the label's column as ``string``."""
    query: str | None = Field(default=None, exclude_if=unset)
    """Ranking: the column whose value the rows share that compete; it need not be a feature."""
    ahead: Duration | None = Field(default=None, exclude_if=unset)
    """How long after its decision a row's outcome is seen; None: in the row itself."""
    of: str | None = Field(default=None, exclude_if=unset)
    """With ``ahead``: the column that was named. The feature function returns it as it was known
    at the decision; the value at the same entity's row ``ahead`` later is the label."""

    @field_validator("classes", mode="before")
    @classmethod
    def _are_words(cls, raw: Any) -> Any:
        if not isinstance(raw, list | tuple):
            return raw
        return [str(one) if type(one) is int else one for one in raw]

    @model_validator(mode="before")
    @classmethod
    def _names_what_comes(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or not raw.get("ahead") or raw.get("of"):
            return raw
        ahead = parse_duration(raw["ahead"])
        if not isinstance(ahead, timedelta) or "column" not in raw:
            return raw
        number, unit = duration_text(ahead).split()
        return {**raw, "of": raw["column"], "column": f"{raw['column']}_in_{number}{unit[0]}"}

    @model_validator(mode="after")
    def _is_whole_for_the_task(self) -> Self:
        match self.task:
            case "binary":
                wrong = "a binary label is true or false: remove 'classes'" if self.classes else ""
            case "multiclass":
                few = len(self.classes) < 2
                wrong = "a multiclass label needs 'classes', at least two of them" if few else ""
            case "regression":
                wrong = "a regression label is a number: remove 'classes'" if self.classes else ""
            case "ranking":
                wrong = "a ranking label is a grade: remove 'classes'" if self.classes else ""
                if self.query is None:
                    wrong = "a ranking label needs 'query': the column that says which rows compete"
            case "language_model":
                counted = "a language model's label is a number of bytes: remove 'classes'"
                wrong = counted if self.classes else ""
            case _:
                assert_never(self.task)
        twice = sorted({name for name in self.classes if self.classes.count(name) > 1})
        if twice:
            wrong = f"classes {twice} are there more than once: name each once (1 is the text '1')"
        if self.query is not None and self.task != "ranking":
            wrong = f"'query' is for a ranking label, this one is {self.task}: remove it"
        if (self.of is None) != (self.ahead is None):
            wrong = "'of' is set from 'column' by 'ahead': give 'column' and 'ahead'"
        if wrong:
            raise ValueError(wrong)
        return self
