"""Renders pages: data in, HTML out; each is a template in ``templates/``."""

import base64
import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ml_assets.errors import visible
from ml_assets.reports.picture import TEMPLATES, Picture
from ml_assets.reports.wording import metric_text, plain_number, title, with_ends

if TYPE_CHECKING:
    from jinja2 import Environment

_MOMENTS = re.compile(r"(\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2})?)")
"""A day, or a minute of it: none of them breaks at a hyphen."""


def page(template: str, /, **shown: Any) -> str:
    """The page that a template makes of what is shown; it loads nothing from outside.

    Text is escaped as it enters the template, and characters that act without being seen (escape
    sequences, marks of direction) are written out wherever they stand.

    Raises:
        jinja2.UndefinedError: the template asks for what is not shown.
    """
    return visible(_environment().get_template(template).render(shown))


@cache
def script_policy() -> str:
    """Return what a browser may do with a page that sorts: run this one script, load nothing."""
    script = _environment().get_template("sortable.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
        f" script-src 'sha256-{digest}'"
    )


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "dates_apart": _MOMENTS.split,
        "drawn": _drawn,
        "metric": title,
        "metric_text": metric_text,
        "plain_number": plain_number,
        "thousands": lambda number: f"{number:,}",
        "with_ends": with_ends,
    }
    made.tests["moment"] = _MOMENTS.fullmatch
    made.globals["script_policy"] = script_policy
    return made


def _drawn(picture: Picture) -> str:
    """The one way of a drawing into a page: its own text was escaped when it was drawn."""
    from markupsafe import Markup

    return Markup(picture.svg)
