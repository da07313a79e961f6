"""One engine: a live run and steps through JSON give the same history and the same acts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nbagent as nb
from tests.unit.core.schedules.search import SEARCH
from tests.unit.core.schedules.turns import kinds_in, numbered, speaker
from tests.unit.core.schedules.world import EDIT, FLAT, Seat, World, middleware


def bare(messages: Any) -> Any:
    """A history without ids and times of interrupts, which differ from run to run."""
    plain = json.loads(json.dumps(messages))
    for item in plain:
        for part in item["content"]:
            for record in part.get("nbagent", ()):
                del record["interrupt"], record["at"]
            part.get("nbagent", []).sort(key=json.dumps)
    return plain


def decided(i: nb.PendingInterrupt, decisions: list[str]) -> Any:
    """The resolution of an interrupt, by its call's number."""
    decision = decisions[i.input["n"] % len(decisions)]
    if decision == "reject":
        return nb.Reject("no", interrupt=i)
    if decision == "respond" or not i.restartable:
        return nb.Respond("answered", interrupt=i)
    edited = {"n": i.input["n"] % EDIT + EDIT} if decision == "edit" else None
    return nb.Restart(edited, interrupt=i)


class Played:
    """One way to play a script to its end, with the answers decided beforehand."""

    def __init__(self, script: Any, decisions: list[str], kind: str) -> None:
        self.world = World()
        self._decisions = decisions
        speakers = [speaker(script), speaker(None, 1), speaker(None, 2)]
        self._models = [nb.ScriptedModel(speak) for speak in speakers]
        self._options = {"middleware": middleware(kind)}

    def agent(self) -> nb.Agent:
        """A fresh agent."""
        models = self._models.__getitem__
        return self.world.agent(Seat(), models, inner=self._options, **self._options)

    async def live(self) -> Any:
        """The history of a live run."""
        run = self.agent().run("go", store=nb.MemoryStore())
        while (await run.settled()).interrupts:
            for i in run.interrupts:
                run.resolve(decided(i, self._decisions))
        return (await run).messages

    async def steps(self) -> Any:
        """The history by generate, through JSON into a fresh agent at every pause."""
        response = await self.agent().generate("go")
        lists = {
            nb.Respond: "tool_responses",
            nb.Restart: "tool_restarts",
            nb.Reject: "tool_rejections",
        }
        while response.interrupts:
            messages = json.loads(json.dumps(response.messages))
            agent = self.agent()
            replies: dict[str, list[Any]] = {}
            for i in agent.interrupts(messages):
                resolution = decided(i, self._decisions)
                replies.setdefault(lists[type(resolution)], []).append(resolution)
            response = await agent.generate(messages=messages, **replies)
        return response.messages

    @property
    def acted(self) -> list[tuple[str, int]]:
        """The acts and their inputs."""
        return sorted((act.kind, act.input) for act in self.world.acts.get(0, []))


QUICK = st.sampled_from([kind for kind in FLAT if kind not in ("slow", "flaky", "timed", "late")])


@settings(**SEARCH, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    turns=st.lists(
        st.lists(
            QUICK | st.tuples(st.just("inner"), st.lists(QUICK, min_size=1, max_size=3)),
            min_size=1,
            max_size=3,
        ),
        max_size=2,
    ),
    decisions=st.lists(st.sampled_from(["respond", "restart", "edit", "reject"]), min_size=1),
    kind=st.sampled_from(["none", "usual", "hostile"]),
)
def test_a_live_run_and_one_through_json_have_the_same_history(turns, decisions, kind):
    """Also the same acts; with inner agents, questions in the middle, streams and steps."""
    counter = iter(range(EDIT))
    script = [numbered(turn, counter) for turn in turns]
    numbers = [n for turn in script for n in kinds_in(turn)]
    assert len(set(numbers)) == len(numbers) <= next(counter)
    live, steps = (Played(script, decisions, kind) for _ in range(2))
    one, two = asyncio.run(live.live()), asyncio.run(steps.steps())
    assert bare(one) == bare(two)
    assert live.acted == steps.acted
