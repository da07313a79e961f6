"""A validator's errors, placed at fields: an error's location is followed through the answered tree.

At a union, pydantic adds one segment, a private label, to a location; the label is skipped, never parsed. A
JSON Schema validator's locations are plain paths. No error is dropped: if a location leads nowhere, the
error is placed at the deepest field that was reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from nbagent.forms.nodes import Grid, Leaf, Object, Union
from nbagent.forms.texts import text_for
from nbagent.forms.values import as_text

from .parts import Part, Path, Problem, Segment

MAX_WHY = 300
"""Characters of the messages of a union's other shapes."""
KEY = "[key]"
"""pydantic's mark for an error in a key of a mapping."""


@dataclass(frozen=True)
class Complaint:
    """One error of a validator: the rest of its location, and the message."""

    loc: Path
    message: str
    why: str = ""
    """The messages of the other shapes of a union."""

    @property
    def inner(self) -> Complaint:
        """The same error, with its location one step further in."""
        return replace(self, loc=self.loc[1:])


def join_reasons(reasons: Mapping[str, Iterable[str]]) -> str:
    """The messages of the other shapes of a union, by their labels, on one bounded line."""
    parts = (f"{label}: {' '.join(dict.fromkeys(each))}" for label, each in reasons.items())
    return as_text(" ".join(" / ".join(parts).split()), limit=MAX_WHY)


def place(part: Part, complaints: list[Complaint], *, labelled: bool) -> list[Problem]:
    """The problems of a validator at their fields; ``labelled`` if unions add a segment to locations."""
    return list(dict.fromkeys(_place(part, complaints, labelled=labelled)))


def _place(part: Part, complaints: list[Complaint], *, labelled: bool) -> list[Problem]:
    if part.branch is not None:
        if labelled:
            return _in_union(part, part.branch, complaints)
        return _place(part.branch, complaints, labelled=False)
    if isinstance(part.node, Grid) and not part.typed:
        return [_in_cell(part, each) for each in complaints]
    problems: list[Problem] = []
    for segment, group in groupby(complaints, key=lambda each: each.loc[:1]):
        child = part.children.get(segment[0]) if segment else None
        if child is None:
            problems += [_here(part, each) for each in group]
        else:
            problems += _place(child, [each.inner for each in group], labelled=labelled)
    return problems


def _in_union(part: Part, branch: Part, complaints: list[Complaint]) -> list[Problem]:
    """The problems of the picked shape; pydantic complains about each shape of a union in turn."""
    branches = part.node.branches if isinstance(part.node, Union) else ()
    exclusive = isinstance(part.node, Union) and part.node.exclusive
    problems = [_here(part, each) for each in complaints if not each.loc]
    inner = (each for each in complaints if each.loc)
    runs = [list(group) for _, group in groupby(inner, key=lambda each: each.loc[0])]
    if not runs:
        return problems
    if len(runs) == 1 and exclusive:
        picked = runs[0]
    elif len(runs) == len(branches) and part.index is not None:
        picked = runs[part.index]
    else:
        messages = "; ".join(dict.fromkeys(each.message for run in runs for each in run))
        return [*problems, Problem(part.id, part.path, text_for("no_shape", problems=messages))]
    found = _place(branch, [each.inner for each in picked], labelled=True)
    pairs = [pair for pair in zip(branches, runs, strict=False) if pair[1] is not picked]
    why = join_reasons({shape.label: (each.message for each in run) for shape, run in pairs})
    return problems + [replace(each, why=each.why or why) for each in found[:1]] + found[1:]


def _here(part: Part, complaint: Complaint) -> Problem:
    """The problem at this field; for a JSON box, the message names the place inside the box."""
    message = complaint.message
    inner_path = [segment for segment in complaint.loc if segment != KEY]
    is_box = part.typed or (isinstance(part.node, Leaf) and part.node.kind == "json")
    if inner_path and (is_box or isinstance(part.node, Object)):
        message = f"{'.'.join(map(str, inner_path))}: {message}"
    form = part.id == "" and isinstance(part.node, Object)
    return Problem(None if form else part.id, (*part.path, *complaint.loc), message, complaint.why)


def _in_cell(part: Part, complaint: Complaint) -> Problem:
    """The problem at a cell or a row of a grid; the message names the place inside the cell's JSON."""
    row, *rest = complaint.loc or (None,)
    if not isinstance(row, int):
        return _here(part, complaint)
    key, *inner = map(str, rest or ("",))
    places = [each for each in inner if each != KEY]
    message = f"{'.'.join(places)}: {complaint.message}" if places else complaint.message
    path = (*part.path, *complaint.loc)
    return Problem(part.id, path, message, complaint.why, cell=(row, key))


def at_path(part: Part, path: list[Segment]) -> Part | None:
    """The part at a plain document path, through the branches of unions; None if the tree does not reach so far."""
    here = part
    for segment in path:
        while here.branch is not None:
            here = here.branch
        child = here.children.get(segment)
        if child is None:
            return None
        here = child
    return here
