"""The calls of one response, put together from its parts by identity: the same rule for every model and server.

Identity is the id: two calls with distinct ids, or without ids, are two calls, even if they are alike. The same id,
name and arguments are one call, however often they arrive; the same id with another name or input is another call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .messages import canonical, object_in


class CallPart(NamedTuple):
    """What a model sent at one index: a call, a repetition of it, or a piece of it."""

    id: str | None
    name: str | None
    arguments: str


class ModelCall(NamedTuple):
    """One call of a response."""

    arguments: str
    parts: list[int]
    """The places of its parts, in order; the first has its id and name."""


def put_together(parts: Sequence[CallPart]) -> list[ModelCall]:
    """The calls of a response, in the order of their first parts.

    Raises:
        ValueError: the parts are not surely complete calls, so none of them may run.
    """
    places: dict[object, list[int]] = {}
    all_have_ids = all(part.id for part in parts if part.name)
    for place, part in enumerate(parts):
        if not part.name and not part.arguments.strip() and all_have_ids:
            continue  # nothing of it arrived
        if not part.name:
            raise ValueError(f"a call has no name (its arguments are {part.arguments[:80]!r})")
        places.setdefault((part.id, part.name) if part.id else place, []).append(place)
    calls = [call for each in places.values() for call in _same_id(parts, each)]
    calls.sort(key=lambda call: call.parts[0])
    firsts = [parts[call.parts[0]]._replace(arguments=call.arguments) for call in calls]
    _check_empty(firsts)
    _check_ids(firsts)
    return calls


def _same_id(parts: Sequence[CallPart], places: list[int]) -> list[ModelCall]:
    """The calls in parts with the same id and name: whole calls, repetitions and pieces.

    Raises:
        ValueError: the parts are neither.
    """
    if len(places) == 1:
        return [ModelCall(parts[places[0]].arguments, places)]
    whole: dict[str, ModelCall] = {}
    pieces: list[int] = []
    for place in places:
        text = parts[place].arguments
        value = object_in(text) if text.strip() else None
        if value is None:
            pieces.append(place)
        else:
            whole.setdefault(canonical(value), ModelCall(text, [])).parts.append(place)
    texts = [parts[place].arguments for place in pieces]
    if not whole:
        joined = "".join(texts)
        if len(set(texts)) == 1 or object_in(joined) is not None:
            return [ModelCall(texts[0] if len(set(texts)) == 1 else joined, pieces)]
    for place, text in zip(pieces, texts, strict=True):  # a repetition that broke off
        begun = (
            call for call in whole.values() if call.arguments.lstrip().startswith(text.strip())
        )
        call = next(begun, None)
        if call is None:
            name = parts[place].name
            raise ValueError(f"the pieces of the call of {name!r} do not fit together")
        call.parts.append(place)
    return [ModelCall(call.arguments, sorted(call.parts)) for call in whole.values()]


def _check_empty(calls: Sequence[CallPart]) -> None:
    """Check that calls without arguments have none, so that none runs with its defaults instead."""
    empty: dict[str | None, bool] = {}
    """Whether each call of a tool without arguments has an id."""
    for id_, name, arguments in calls:
        if not arguments.strip():
            empty[name] = empty.get(name, True) and bool(id_)
    for id_, name, arguments in calls if empty else ():
        is_other = name in empty and arguments.strip()
        if is_other and (not (id_ and empty[name]) or object_in(arguments) is None):
            raise ValueError(f"the arguments of a call of {name!r} arrived apart from it")


def _check_ids(calls: Sequence[CallPart]) -> None:
    """Check that no call without an id may be a repetition or a piece of another call of its tool."""
    without = {call.name for call in calls if not call.id}
    number = Counter(call.name for call in calls)
    known = {(call.name, call.arguments.strip()) for call in calls if call.id}
    for id_, name, arguments in calls if without else ():
        if name not in without or number[name] == 1:
            continue
        if object_in(arguments) is None:
            raise ValueError(f"the pieces of the calls of {name!r} cannot be told apart")
        if not id_ and (name, arguments.strip()) in known:
            raise ValueError(f"a call of {name!r} arrived with an id and without")
