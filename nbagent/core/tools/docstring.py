"""A tool's docstring: the description of the tool and of each parameter, in the three usual styles."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import Field

_SECTIONS = {
    "GOOGLE": re.compile(
        r"^(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):[ \t]*$",
        re.MULTILINE,
    ),
    "NUMPYDOC": re.compile(r"^(?:Parameters|Other Parameters)[ \t]*\n-{3,}[ \t]*$", re.MULTILINE),
    "REST": re.compile(r"^:(?:param|parameter|arg|argument|key|keyword)\s+[^:\n]+:", re.MULTILINE),
}
"""Patterns for the start of the parameters, by style.
https://google.github.io/styleguide/pyguide.html#383-functions-and-methods, https://numpydoc.readthedocs.io,
https://www.sphinx-doc.org/en/master/usage/domains/python.html#info-field-lists."""


class Documented(NamedTuple):
    """The parts of a docstring."""

    description: str
    """The text before the parameters; the whole text if it describes no parameters."""
    parameters: dict[str, str]


def documented(function: Any, names: Collection[str]) -> Documented:
    """The descriptions, in a function's docstring, of the function and of its parameters with these names."""
    text = inspect.getdoc(function) or ""
    found = ((kind, section.search(text)) for kind, section in _SECTIONS.items())
    starts = [(match.start(), kind) for kind, match in found if match is not None]
    if not starts:
        return Documented(text, {})
    start, kind = min(starts)
    descriptions = {
        name: description for name, description in _parameters(text, kind).items() if name in names
    }
    return Documented(text[:start].strip(), descriptions) if descriptions else Documented(text, {})


def described(annotation: Any, description: str | None) -> Any:
    """A parameter's annotation with this description, if it has no description yet."""
    if description is None:
        return annotation
    field = Field(description=description)
    if get_origin(annotation) is not Annotated:
        return Annotated[annotation, field]
    bare, *own = get_args(annotation)
    return Annotated[(bare, field, *own)]  # a later description wins


def _parameters(text: str, kind: str) -> dict[str, str]:
    import docstring_parser  # noqa: PLC0415  few tools have such a section

    try:
        parsed = docstring_parser.parse(text, docstring_parser.DocstringStyle[kind])
    except docstring_parser.ParseError:
        return {}
    return {
        each.arg_name.lstrip("*"): " ".join(each.description.split())
        for each in parsed.params
        if each.description
    }
