"""What a validator says, placed at fields: the answered tree is walked together with the location.

pydantic puts one extra segment, a private label, where a union stands; it is consumed, never read. A
JSON Schema validator's locations are plain paths. Nothing is dropped: a location that leads nowhere
stays at the deepest field that was reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from nbagent.forms.nodes import Leaf, Object
from nbagent.forms.texts import say

from .parts import Part, Path, Problem, Segment

MAX_WHY = 300
"""Characters of what the other shapes of a union say."""
KEY = "[key]"
"""pydantic's mark for an error in a name of a mapping."""


@dataclass(frozen=True)
class Complaint:
    """One error of a validator: what is left of its location, and the message."""

    loc: Path
    message: str
    why: str = ""
    """What the other shapes of a union say."""

    @property
    def inside(self) -> Complaint:
        """The same, one step further in."""
        return replace(self, loc=self.loc[1:])


def others(said: Mapping[str, Iterable[str]]) -> str:
    """What other shapes of a union say, by their names, on one bounded line."""
    told = (f"{label}: {' '.join(dict.fromkeys(each))}" for label, each in said.items())
    line = " ".join(" / ".join(told).split())
    return line if len(line) <= MAX_WHY else line[: MAX_WHY - 1] + "…"


def place(part: Part, complaints: list[Complaint], *, labelled: bool) -> list[Problem]:
    """The problems of a validator at their fields; ``labelled`` where unions add a segment."""
    found = _place(part, complaints, labelled)
    return list(dict.fromkeys(found))


def _place(part: Part, complaints: list[Complaint], labelled: bool) -> list[Problem]:  # noqa: FBT001
    if part.branch is not None:
        return _in_union(part, part.branch, complaints, labelled)
    problems: list[Problem] = []
    for segment, group in groupby(complaints, key=lambda each: each.loc[:1]):
        listed = list(group)
        child = part.children.get(segment[0]) if segment else None
        if child is None:
            problems += [_here(part, each) for each in listed]
        else:
            rest = [each.inside for each in listed]
            problems += _place(child, rest, labelled)
    return problems


def _in_union(
    part: Part,
    branch: Part,
    complaints: list[Complaint],
    labelled: bool,  # noqa: FBT001
) -> list[Problem]:
    if not labelled:
        return _place(branch, complaints, labelled)
    own = [each for each in complaints if not each.loc]
    runs = [
        list(group)
        for _, group in groupby(
            (each for each in complaints if each.loc), key=lambda each: each.loc[0]
        )
    ]
    problems = [_here(part, each) for each in own]
    count = len(getattr(part.node, "branches", ()))
    if len(runs) == 1 and getattr(part.node, "exclusive", False):
        chosen = runs[0]
    elif len(runs) == count and part.index is not None:
        chosen = runs[part.index]
    elif runs:
        told = "; ".join(dict.fromkeys(each.message for run in runs for each in run))
        return [*problems, Problem(part.id, part.path, say("no_shape", problems=told))]
    else:
        return problems
    found = _place(branch, [each.inside for each in chosen], labelled)
    labels = [each.label for each in getattr(part.node, "branches", ())]
    unpicked = [pair for pair in zip(labels, runs, strict=False) if pair[1] is not chosen]
    why = others({label: (each.message for each in run) for label, run in unpicked})
    return problems + [replace(each, why=each.why or why) for each in found[:1]] + found[1:]


def _here(part: Part, complaint: Complaint) -> Problem:
    """At this field; in a JSON box the message tells the place inside."""
    message = complaint.message
    inside = [segment for segment in complaint.loc if segment != KEY]
    if inside and (isinstance(part.node, Object) or _is_box(part)):
        message = f"{'.'.join(map(str, inside))}: {message}"
    form = part.id == "" and isinstance(part.node, Object)
    return Problem(None if form else part.id, (*part.path, *complaint.loc), message, complaint.why)


def _is_box(part: Part) -> bool:
    return part.typed or (isinstance(part.node, Leaf) and part.node.kind == "json")


def at_path(part: Part, path: list[Segment]) -> Part | None:
    """The part at a plain document path, unions entered, or None where the tree does not reach."""
    here = part
    for segment in path:
        while here.branch is not None:
            here = here.branch
        child = here.children.get(segment)
        if child is None:
            return None
        here = child
    return here
