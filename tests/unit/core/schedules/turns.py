"""Turns that hypothesis draws, and the models that ask for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.base.model import ModelDelta, Request, Usage
from tests.unit.core.schedules.world import FLAT, NESTS, input_of

USAGE = (Usage(10, 1, 0.01), Usage(5, 2, 0.005), Usage(1, 1, 0.001))
"""The usage of a response, by depth."""

LEAVES = st.integers(0, 2 * len(FLAT) - 1)
"""Indices into a list of tools, modulo its length."""
PLACE = st.integers(0, 5)
"""The index of a nest."""
TURN = st.lists(
    LEAVES
    | st.tuples(
        PLACE,
        st.lists(
            LEAVES | st.tuples(PLACE, st.lists(LEAVES, min_size=1, max_size=2)),
            min_size=1,
            max_size=3,
        ),
    ),
    min_size=2,
    max_size=4,
)
TURNS = st.lists(TURN, min_size=1, max_size=3)


def named(turns: Any, tools: Sequence[str], nests: Sequence[str]) -> Any:
    """Drawn turns with names in place of the indices of tools and nests."""
    return [_named(one, tools, nests) for one in turns]


def _named(one: Any, tools: Sequence[str], nests: Sequence[str]) -> Any:
    if isinstance(one, list):
        return named(one, tools, nests)
    if isinstance(one, tuple):
        return nests[one[0] % len(nests)], named(one[1], tools, nests)
    return tools[one % len(tools)]


def numbered(turn: Any, counter: Iterator[int]) -> Any:
    """A drawn turn as ``[kind, number]`` with a number for each call.

    An agent's call is ``["inner", turns]``, a calling body's is ``["calls", [number, turns]]``.
    """
    return [_numbered(one, counter) for one in turn]


def _numbered(one: Any, counter: Iterator[int]) -> list[Any]:
    if isinstance(one, str):
        return [one, next(counter)]
    nest, within = one
    own = next(counter)
    turns = _two_turns(numbered(within, counter))
    return [nest, turns if nest == "inner" else [own, turns]]


def _two_turns(calls: list[Any]) -> list[Any]:
    return [turn for turn in (calls[:2], calls[2:]) if turn]


def kinds_in(turn: Any) -> dict[int, str]:
    """The tool of each call, by the call's number."""
    found: dict[int, str] = {}
    for kind, what in turn:
        own, within = what if kind == "calls" else (what, what)
        for each in within if kind in NESTS else ():
            found |= kinds_in(each)
        if kind != "inner":
            found[own] = kind
    return found


def requested(turn: list[Any]) -> list[Any]:
    """The calls of a turn of ``[kind, number or turns]``."""
    return [nb.ScriptedModel.call(kind, **input_of(kind, what)) for kind, what in turn]


def answer_count(messages: Any) -> int:
    """The number of model responses in this history."""
    return sum(m["role"] == "assistant" for m in messages)


def speaker(turns: list[Any] | None, depth: int = 0) -> Callable[[Any], Any]:
    """A model's next answer, by the history: from these turns, or else from those in the prompt."""

    def speak(messages: Any) -> Any:
        mine = json.loads(messages[0]["content"][0]["text"]) if turns is None else turns
        number = answer_count(messages)
        return requested(mine[number]) if number < len(mine) else f"done at {depth}"

    return speak


class Watched:
    """A model whose requests are checked before it answers."""

    def __init__(self, model: nb.ScriptedModel, look: Callable[[Request], None]) -> None:
        self.name, self.reports_cost = model.name, model.reports_cost
        self._model, self._look = model, look

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """Check the request, then answer."""
        self._look(request)
        async for delta in self._model.stream(request):
            yield delta
