"""``ctx.later``: an interim result now, and the final one as a message when it comes from outside."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer, MessagesError, Misuse
from nbagent.core.base.messages import load
from nbagent.core.run.run import session_of
from nbagent.core.state.next_step import Wait, next_step
from nbagent.core.state.pause_record import restore
from tests.asked import answered_by_many
from tests.until import turns, until

call = nb.ScriptedModel.call


def starting(tokens: list[str] | None = None, **options: Any) -> Any:
    """A function that adds a tool that starts an outside job."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def start(n: int, ctx: nb.ToolContext) -> int:
            if tokens is not None:
                tokens.append(ctx.external_token)
            return ctx.later(f"started, job {n}", **options)  # type: ignore[no-any-return]

        @agent.tool
        def plain() -> str:
            return "plain"

        agent.add(nb.interrupt_tool("ask", output=str))

    return define


def agent_of(script: Any, tokens: list[str] | None = None, **options: Any) -> nb.Agent:
    """An agent with that tool."""
    agent = nb.Agent(nb.ScriptedModel(script))
    starting(tokens, **options)(agent)
    return agent


def texts(messages: Any) -> list[Any]:
    """The history in short: texts, and the results of calls."""
    return [
        part.get("text", part.get("output"))
        for item in messages
        for part in item["content"]
        if part["type"] != "tool_call"
    ]


FINAL = "The final result of the call {} of start: 7"


async def test_c159_the_model_gets_the_interim_result_now_and_the_final_one_later(play):
    """The run ends only after the final result, which starts a new turn; the history has both."""
    s = await play([call("start", n=3), "It runs.", "It gave 7."], starting())
    (i,) = s.interrupts
    assert (i.kind, i.expects, i.tool_name) == ("later", "external", "start")
    with pytest.raises(InvalidAnswer):
        await s.answer(respond={0: "no number"})
    await s.answer(respond={0: 7})
    told = FINAL.format(i.call_id)
    assert texts(s.messages)[1:] == ["started, job 3", "It runs.", told, "It gave 7."]
    assert [m["role"] for m in s.messages][-2:] == ["user", "assistant"]
    assert (s.text, s.interrupts) == ("It gave 7.", [])


async def test_c159_a_final_result_during_an_open_turn_follows_its_results(play):
    """Like a person's message; other questions stay open meanwhile."""
    steps = [[call("start", n=1), call("ask")], "It gave 7."]
    s = await play(steps, starting())
    assert [i.tool_name for i in s.interrupts] == ["ask", "start"]
    later = s.interrupts[1]
    await s.answer(respond={1: 7})
    assert [i.tool_name for i in s.interrupts] == ["ask"]
    await s.answer(respond={0: "b"})
    told = FINAL.format(later.call_id)
    assert texts(s.messages)[1:] == ["started, job 1", "b", told, "It gave 7."]


async def test_c159_several_final_results_are_awaited_one_by_one(play):
    """Each result continues the run; the last one ends it."""
    steps = [[call("start", n=1), call("start", n=2)], "Both run.", "One.", "Two."]
    s = await play(steps, starting())
    await s.answer(respond={1: 20})
    assert (texts(s.messages)[-1], [i.kind for i in s.interrupts]) == ("One.", ["later"])
    await s.answer(respond={0: 10})
    assert (s.text, s.interrupts) == ("Two.", [])


async def test_c159_a_failure_or_a_rejection_is_sent_too(play):
    """The message has the failure or the reason."""
    steps = [[call("start", n=1), call("start", n=2)], "Both run.", "One.", "Two."]
    s = await play(steps, starting())
    first, second = s.interrupts
    await s.answer(reject={1: "no money"})
    await s.decide(nb.Respond(error="disk full", interrupt=s.interrupts[0].id))
    assert s.text == "Two."
    said = texts(s.messages)
    assert f"The call {first.call_id} of start failed: disk full" in said
    why = f"The call {second.call_id} of start has no final result. Reason: no money"
    assert why in said


async def test_c159_the_final_result_has_its_own_type(play):
    """``reply=``, or the return type; the call cannot be restarted."""
    s = await play([call("start", n=1), "Runs.", "Done."], starting(reply=list[str]))
    assert s.interrupts[0].reply_schema == {"type": "array", "items": {"type": "string"}}
    with pytest.raises(InvalidAnswer):
        await s.answer(restart={0: {}})
    with pytest.raises(InvalidAnswer):
        await s.answer(respond={0: [7]})
    await s.answer(respond={0: ["a"]})
    assert s.text == "Done."


async def test_c159_a_later_result_of_an_inner_agent_is_awaited_by_its_run():
    """The outer call waits too, through JSON and live."""
    inner = nb.Agent(nb.ScriptedModel([call("start", n=1), "Runs.", "Got 7."] * 2), name="inner")
    starting()(inner)
    script = nb.ScriptedModel([call("inner", prompt="go"), "done"] * 2)
    agent = nb.Agent(script, tools=[inner.as_tool()])
    response = await agent.generate("go")
    (i,) = response.interrupts
    assert (i.kind, i.path) == ("later", ("agent", "inner", "start"))
    messages = json.loads(json.dumps(response.messages))
    response = await agent.generate(messages=messages, tool_responses=[i.respond(7)])
    assert (response.text, texts(response.messages)[1]) == ("done", "Got 7.")
    run = await agent.run("go").settled()
    assert run.status == "interrupted"
    run.respond(run.interrupts[0], 7)
    assert (await run).text == "done"
    assert run.calls["inner"][0].output == "Got 7."


async def test_c159_a_token_delivers_the_final_result_once():
    """An unattended await waits for it; of several answers one counts."""
    tokens: list[str] = []
    run = agent_of([call("start", n=1), "Runs.", "Done."], tokens).run("go")
    waiting = asyncio.ensure_future(run)
    await until(lambda: run.status == "interrupted")
    await turns()
    assert not waiting.done()
    outcomes = await answered_by_many(tokens[0], 7)
    assert (await waiting).text == "Done."
    assert outcomes == ["told"] * 7 + ["took"]
    assert [e.by for e in run.journal if e.type == "resolved"] == ["external"]
    assert tokens[0] not in repr(run.journal)


class Slow:
    """A model that answers later requests once ``go`` is set."""

    name = "slow"

    def __init__(self, inner: Any) -> None:
        self.inner, self.go, self.asked = inner, asyncio.Event(), 0

    async def stream(self, request: Any) -> Any:
        """Answer the first request at once."""
        self.asked += 1
        if self.asked > 1:
            await self.go.wait()
        async for delta in self.inner.stream(request):
            yield delta


async def test_c159_a_final_result_that_arrives_during_a_response_follows_it():
    """It does not interrupt the response; the run is still running."""
    tokens: list[str] = []
    model = Slow(nb.ScriptedModel([call("start", n=1), "Runs.", "Done."]))
    agent = nb.Agent(model)
    starting(tokens)(agent)
    run = agent.run("go")
    await until(lambda: model.asked == 2)
    assert run.status == "running"
    nb.answer_external(tokens[0], 7)
    model.go.set()
    assert (await run).text == "Done."
    told = FINAL.format(run.calls["start"][0].id)
    assert texts(run.messages)[1:] == ["started, job 1", "Runs.", told, "Done."]


async def test_c159_a_new_message_can_arrive_meanwhile():
    """Live in the same run, and step by step; the final result is still awaited."""
    tokens: list[str] = []
    agent = agent_of([call("start", n=1), "Runs.", "Hello.", "Done."], tokens)
    run = await agent.run("go").settled()
    with pytest.raises(nb.errors.UnansweredInterrupts):
        agent.run("and?", after=run, pending="raise")
    assert agent.run("and?", after=run, pending="queue") is run
    await until(lambda: run.status == "interrupted" and texts(run.messages)[-1] == "Hello.")
    nb.answer_external(tokens[0], 7)
    assert (await run).text == "Done."

    agent = agent_of([call("start", n=1), "Runs.", "Hello.", "Done."])
    first = await agent.generate("go")
    second = await agent.generate("and?", messages=first.messages)
    assert (second.text, len(second.interrupts)) == ("Hello.", 1)
    with pytest.raises(nb.errors.UnansweredInterrupts):
        await agent.generate(messages=second.messages)
    (i,) = second.interrupts
    third = await agent.generate(messages=second.messages, tool_responses=[i.respond(7)])
    assert third.text == "Done."


@pytest.mark.parametrize(
    ("on_expire", "said"),
    [("reject", "has no final result"), (nb.Respond(9), "of start: 9"), ("fail", None)],
)
async def test_c159_it_expires_like_any_outside_answer(on_expire, said):
    """Once; ``on_expire="fail"`` fails the run."""
    options = {"expires_in": 0.05, "on_expire": on_expire}
    run = agent_of([call("start", n=1), "Runs.", "Done."], **options).run("go")
    if said is None:
        with pytest.raises(nb.errors.Expired):
            await run
        return
    assert (await run).text == "Done."
    assert said in texts(run.messages)[3]
    assert [e.by for e in run.journal if e.type == "resolved"] == ["expiry"]


WORKER = """
import asyncio, sys
import nbagent as nb

path, run_id, token = sys.argv[1:]
agent = nb.Agent(nb.ScriptedModel(["Done elsewhere."]))

async def main():
    with nb.SQLiteStore(path) as store:
        if not token:
            return
        run = await nb.open_run(run_id, agent=agent, store=store)
        nb.answer_external(token, 7)
        print((await run).text)

asyncio.run(main())
"""

BEGIN = """
import asyncio, os, sys
import nbagent as nb

call = nb.ScriptedModel.call
agent = nb.Agent(nb.ScriptedModel([call("start"), "Runs."]))

@agent.tool
def start(ctx: nb.ToolContext) -> int:
    print(ctx.external_token)
    return ctx.later("started")

async def main():
    run = await agent.run("go", store=nb.SQLiteStore(sys.argv[1])).settled()
    print(run.id, flush=True)
    os._exit(9)

asyncio.run(main())
"""


def test_c159_it_is_awaited_after_the_death_of_its_process(tmp_path: Path):
    """A process that opens the run waits for it, without the tool."""
    path = str(tmp_path / "runs.db")
    begun = subprocess.run(
        [sys.executable, "-c", BEGIN, path], capture_output=True, text=True, check=False
    )
    token, run_id = begun.stdout.split()
    done = subprocess.run(
        [sys.executable, "-c", WORKER, path, run_id, token],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "Done elsewhere.", done.stderr


async def test_c159_a_fork_awaits_it_separately():
    """The token answers only the original; the fork has the response to the interim result."""
    tokens: list[str] = []
    run = (
        await agent_of([call("start", n=1), "Runs.", "Done.", "Done."], tokens).run("go").settled()
    )
    fork = await run.fork(at=run.interrupts[0]).settled()
    assert (fork.status, texts(fork.messages)[-1]) == ("interrupted", "Runs.")
    nb.answer_external(tokens[0], 7)
    assert (await run).text == "Done."
    again = await run.fork(at=next(e.id for e in run.journal if e.type == "interrupted")).settled()
    fork.respond(fork.interrupts[0], 8)
    assert (await fork).text == "Done."
    assert (again.status, len(again.interrupts)) == ("interrupted", 1)


async def test_c159_a_cancelled_run_no_longer_awaits_it():
    """Nor does a follow-up run."""
    tokens: list[str] = []
    agent = agent_of([call("start", n=1), "Runs.", "Hello."], tokens)
    run = await agent.run("go").settled()
    await run.cancel()
    with pytest.raises((nb.Conflict, nb.errors.NotPending)):
        nb.answer_external(tokens[0], 7)
    assert (await agent.run("and?", after=run)).text == "Hello."


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("forgets", "The tool 'start' must return the value of ctx.later unchanged"),
        ("wraps", "The tool 'start' must return the value of ctx.later unchanged"),
        ("final", "The result of 'start' ends the run"),
        ("default", "of 'start' does not match its answer type"),
    ],
)
async def test_c159_a_promised_result_that_is_not_returned_fails_the_run(how, why):
    """Nobody would get the result."""
    agent = nb.Agent(nb.ScriptedModel([call("start"), "Runs."]))

    @agent.tool(final=how == "final")
    def start(ctx: nb.ToolContext) -> int:
        on_expire = nb.Respond("x") if how == "default" else "reject"
        promised = ctx.later("started", expires_in=60, on_expire=on_expire)
        return {"forgets": 0, "wraps": nb.ToolResult(promised)}.get(how, promised)  # type: ignore[return-value]

    with pytest.raises(Misuse, match=why):
        await agent.run("go")


async def test_c159_middleware_gets_the_interim_result():
    """Middleware can change it."""

    async def loud(call_: nb.ToolCall, next_: Any) -> Any:
        return (await next_(call_)).upper()

    agent = nb.Agent(nb.ScriptedModel([call("start", n=1), "Runs."]), middleware=[loud])
    starting()(agent)
    response = await agent.generate("go")
    assert texts(response.messages)[1] == "STARTED, JOB 1"
    assert [i.kind for i in response.interrupts] == ["later"]


async def test_c159_a_history_with_a_forged_interim_result_is_refused():
    """For another call, or of another kind."""
    response = await agent_of([call("start", n=1), "Runs."]).generate("go")
    agent = agent_of(["x"])
    for change in ({"call_id": "other"}, {"kind": "tool"}, {"at": "x"}, {"expects": "value"}):
        messages = [
            {
                **item,
                "content": [
                    {**part, "later": {**part["later"], **change}} if "later" in part else part
                    for part in item["content"]
                ],
            }
            for item in response.messages
        ]
        with pytest.raises(MessagesError, match="is malformed"):
            await agent.generate("on", messages=messages)


async def test_c159_a_fork_at_an_interim_result_has_the_results_of_calls_that_ran_beside_it():
    """A call that was running then has ended since: the fork has its result and does not run it again."""
    steps = [[call("start", n=3), call("slow")], "Both.", "It gave 7.", "It gave 8."]
    agent, go, ran = agent_of(steps), asyncio.Event(), list[str]()

    @agent.tool
    async def slow() -> str:
        await go.wait()
        ran.append("slow")
        return "slowly"

    run = agent.run("go", show=False, attended=True)
    await until(lambda: bool(run.interrupts) and "slow" in session_of(run).executing)
    later = run.interrupts[0]
    run.respond(later, 7)
    go.set()
    await run
    fork = await run.fork(at=later.id).settled()
    (i,) = fork.interrupts
    assert (i.kind, fork.calls["slow"][0].output, ran) == ("later", "slowly", ["slow"])
    fork.respond(i, 8)
    await fork
    assert (fork.status, ran) == ("completed", ["slow"])


@pytest.mark.parametrize("inside", [False, True])
async def test_c159_a_fork_of_a_run_from_messages_awaits_it_separately(inside):
    """The token answers only the run; the fork has its own question, which stays open."""
    tokens: list[str] = []
    agent = agent_of([call("start", n=1), "Runs.", "Done.", "Done."], tokens)
    if inside:
        outer = [call("agent", prompt="go"), "Done.", "Done."]
        agent = nb.Agent(nb.ScriptedModel(outer), name="outer", tools=[agent.as_tool()])
    response = await agent.generate("go")
    messages = json.loads(json.dumps(response.messages))
    run = await agent.run(messages=messages, attended=True, show=False).settled()
    fork = await run.fork().settled()
    assert run.interrupts[0].id != fork.interrupts[0].id
    await nb.answer_external(tokens[0], 7)
    assert (await run).text == "Done."
    assert fork.status == "interrupted"


async def test_c159_a_secret_in_the_final_result_is_stored_nowhere():
    """The model gets a mask."""

    class Key(BaseModel):
        value: SecretStr

    tokens: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([call("start"), "Runs.", "Done."]))

    @agent.tool
    def start(ctx: nb.ToolContext) -> Key:
        tokens.append(ctx.external_token)
        return ctx.later("started")  # type: ignore[no-any-return]

    run = await agent.run("go", attended=True, show=False).settled()
    with pytest.raises(InvalidAnswer):
        nb.answer_external(tokens[0], {"value": 7})
    await nb.answer_external(tokens[0], {"value": "hunter2"})
    await run
    kept = json.dumps(run.messages) + "".join(event.model_dump_json() for event in run.journal)
    assert "final result" in kept
    assert "hunter2" not in kept


async def test_a_history_that_waits_after_a_final_answer_keeps_that_answer() -> None:
    """As JSON too it waits for the later result, and not for the model; a malformed answer is refused."""
    agent = agent_of([[call("start", n=1), call("last")], "The model is not asked."])
    agent.add(nb.interrupt_tool("last", output=str, final=True))
    first = await agent.generate("go")
    last = next(i for i in first.interrupts if i.tool_name == "last")
    answer = [last.respond("yes")]
    paused = await agent.generate(messages=first.messages, tool_responses=answer, partial=True)
    assert [i.kind for i in paused.interrupts] == ["later"]
    messages = json.loads(json.dumps(paused.messages))
    assert isinstance(next_step(restore(load(messages))), Wait)
    messages[-1]["content"][0]["final"] = "yes"
    with pytest.raises(MessagesError, match="final answer with the call 'call_1' is malformed"):
        await agent.generate(messages=messages)
