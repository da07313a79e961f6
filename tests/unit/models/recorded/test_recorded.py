"""A recording replays a session, shows what has changed since, and contains no secret."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError, NotRecorded
from nbagent.core.base.events import dump
from nbagent.core.base.messages import message, text_part, user, with_escaped_surrogates
from nbagent.core.base.model import (
    Citation,
    Discarded,
    Finished,
    Hosted,
    HostedCall,
    Notice,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    Usage,
    Waiting,
)
from nbagent.core.base.secrets import MASK
from nbagent.core.engine.response import Collected
from nbagent.models.recorded.exchange import request_json
from nbagent.models.recorded.recording import FORMAT
from nbagent.models.recorded.scrub import Scrubber
from nbagent.models.scripted import ScriptedCall

CALL = nb.ScriptedModel.call


def transfer(to: str, amount: float) -> str:
    """Move money."""
    return f"sent {amount} to {to}"


def pick(question: str, ctx: nb.ToolContext) -> str:
    """Ask the person."""
    return ctx.interrupt(nb.Ask(message=question))


def banker(model: Any, **options: Any) -> nb.Agent:
    return nb.Agent(
        model,
        instructions="Be exact.",
        tools=[transfer],
        policy=[nb.review("transfer")],
        **options,
    )


SCRIPT = [CALL("transfer", to="A1", amount=5), "Sent."]


async def recorded(path, script=SCRIPT, *, make=banker, prompt="Send 5 to A1", answers=None):
    """Record a session with a person, who approves each question."""
    agent = make(nb.RecordedModel(path, nb.ScriptedModel(list(script)), mode="record"))
    run = agent.run(prompt, attended=True, show=False)
    await run.settled()
    while run.interrupts:
        waiting = run.interrupts[0]
        if answers is None:
            run.resolve(waiting.id, nb.Restart(), by="form")
        else:
            run.resolve(waiting.id, answers.pop(0), by="form")
        await run.settled()
    return await run


def recorded_session(path):
    return json.loads(path.read_text())["session"]


async def test_c200_a_recorded_session_replays_without_a_person(tmp_path):
    """The file has the answers of the model and the person; no model is passed."""
    path = tmp_path / "session.json"
    first = await recorded(path)
    with nb.RecordedModel(path, mode="replay") as model:
        run = banker(model).run("Send 5 to A1", attended=False)
        result = await run
    assert (result.text, first.text) == ("Sent.", "Sent.")
    assert [call.output for call in run.calls["transfer"]] == ["sent 5.0 to A1"]
    assert [event.by for event in run.journal if event.type == "resolved"] == ["recording"]
    assert model.name == "scripted"


async def test_a_recording_can_be_read_as_the_story_of_a_session(tmp_path):
    """Entries are in order, and a request has only what is new; an answer has the model's words."""
    path = tmp_path / "session.json"
    await recorded(path)
    ask, question, last = recorded_session(path)
    assert ask["request"]["messages"] == [dict(user("Send 5 to A1"))]
    assert ask["request"]["instructions"] == "Be exact."
    assert [tool["name"] for tool in ask["request"]["tools"]] == ["transfer"]
    assert ask["answer"]["said"] == [
        {"call": {"id": "call_1", "name": "transfer", "input": {"to": "A1", "amount": 5}}}
    ]
    assert question["question"]["tool"] == "transfer"
    assert question["answered"] == {"type": "restart"}
    assert last["request"]["same_as"] == {"number": 1, "messages": 1}
    assert [each["role"] for each in last["request"]["messages"]] == ["assistant", "tool"]
    assert "tools" not in last["request"]
    assert last["answer"]["said"] == [{"text": "Sent."}]
    assert path.read_text().endswith("\n")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_size_of_a_recording_grows_linearly(tmp_path):
    """Each turn of a long conversation adds only its new part."""
    path, turns, text = tmp_path / "session.json", 40, "x" * 1000
    script = [*(CALL("echo", text=text) for _ in range(turns)), "done"]

    def echo(text: str) -> str:
        """Give it back."""
        return text

    def make(model: Any) -> nb.Agent:
        return nb.Agent(model, tools=[echo], max_turns=50)

    await recorded(path, script, make=make)
    assert path.read_text().count(text) <= 3 * turns
    assert (await make(nb.RecordedModel(path)).run("Send 5 to A1")).text == "done"


DRIFTS: dict[str, Any] = {
    "another prompt": (
        {"prompt": "Send 6 to A1"},
        ['-   "text": "Send 5 to A1"', '+   "text": "Send 6 to A1"'],
    ),
    "other instructions": (
        {"instructions": "Be quick."},
        ['"instructions": "Be exact."', '"instructions": "Be quick."'],
    ),
    "another model": ({"name": "newer"}, ['- "model": "scripted"', '+ "model": "newer"']),
}


@pytest.mark.parametrize("drift", DRIFTS)
async def test_an_unrecorded_request_fails_with_the_difference(drift, tmp_path):
    """The error compares the request with the nearest one, and shows how to record again."""
    path = tmp_path / "session.json"
    await recorded(path)
    changed, expected = DRIFTS[drift]
    given = nb.ScriptedModel([], name=changed["name"]) if "name" in changed else None
    agent = banker(nb.RecordedModel(path, given, mode="replay"))
    agent.instructions = changed.get("instructions", agent.instructions)
    with pytest.raises(NotRecorded) as caught:
        await agent.run(changed.get("prompt", "Send 5 to A1"), attended=False)
    assert all(line in caught.value.diff for line in expected), caught.value.diff
    assert caught.value.diff in str(caught.value)
    assert "nbagent record" in str(caught.value)
    assert "number 1" in str(caught.value)


async def test_the_size_of_a_difference_is_bounded(tmp_path):
    """A prompt of a megabyte makes neither a long error nor a noticeable delay."""
    path = tmp_path / "session.json"
    await recorded(path, prompt="\n".join(f"line {n}" for n in range(20_000)))
    with pytest.raises(NotRecorded) as caught:
        await banker(nb.RecordedModel(path)).run("\n".join(f"row {n}" for n in range(20_000)))
    assert len(str(caught.value)) < 20_000
    assert "more lines" in caught.value.diff


async def test_c202_an_answer_that_differs_from_the_recorded_one_is_explained(tmp_path):
    """On Binder a person may answer differently: the error says that the recording cannot continue."""
    path = tmp_path / "session.json"
    await recorded(path)
    run = banker(nb.RecordedModel(path)).run("Send 5 to A1", attended=True, show=False)
    await run.settled()
    assert [waiting.tool_name for waiting in run.interrupts] == [
        "transfer"
    ]  # nobody answered in the person's place
    run.reject(run.interrupts[0], "no")
    with pytest.raises(NotRecorded, match="can only be replayed with the same results and answers"):
        await run


@pytest.mark.parametrize("given", ["other input", "other schema", "once more"])
async def test_c201_a_recorded_approval_counts_once_and_only_for_the_displayed_input(
    given, tmp_path
):
    """P5: another input, another schema or a second call asks again, and nothing runs."""
    path, ran = tmp_path / "session.json", []
    await recorded(path)
    entries = json.loads(path.read_text())
    if given == "other input":
        entries["session"][0]["answer"]["said"][0]["call"]["input"]["to"] = "B2"
        path.write_text(json.dumps(entries))

    def other(to: str, amount: float, fee: float = 0.0) -> str:
        """Move money."""
        ran.append(to)
        return f"sent {amount} to {to}"

    tool = nb.tool(name="transfer")(other)
    model = nb.RecordedModel(path, mode="replay")
    if given == "once more":
        agent = banker(model)
        await agent.run("Send 5 to A1", attended=False)
    else:
        agent = nb.Agent(
            model,
            instructions="Be exact.",
            tools=[tool if given == "other schema" else transfer],
            policy=[nb.review("transfer")],
        )
        if given == "other schema":  # the request has the new schema, whatever tool runs
            model._tape._exchanges[0]["request"]["tools"][0]["input_schema"] = tool.input_schema
    run = agent.run("Send 5 to A1", attended=False)
    with pytest.raises(nb.HumanInputRequired, match="The recording 'session"):
        await run
    assert run.status == "interrupted"
    assert ran == []


async def test_c203_answers_from_code_come_before_recorded_ones_and_are_not_recorded(tmp_path):
    """The code answers again in a replay."""
    path = tmp_path / "session.json"
    model = nb.RecordedModel(path, nb.ScriptedModel(list(SCRIPT)), mode="record")
    await banker(model).run("Send 5 to A1", attended=False, answers=[True])
    assert [entry for entry in recorded_session(path) if "question" in entry] == []
    with pytest.raises(nb.HumanInputRequired):
        await banker(nb.RecordedModel(path)).run("Send 5 to A1", attended=False)
    run = banker(nb.RecordedModel(path)).run("Send 5 to A1", attended=False, answers=[True])
    assert (await run).text == "Sent."


TYPED = [CALL("pick", question="Which one?"), "Noted."]


async def test_a_typed_answer_and_a_rejection_replay(tmp_path):
    """All kinds of answers, for a tool's question and for an approval."""
    path = tmp_path / "session.json"

    def make(model: Any) -> nb.Agent:
        return nb.Agent(model, tools=[pick, transfer], policy=[nb.review("transfer")])

    script = [[TYPED[0], SCRIPT[0]], "Noted."]
    given = [nb.Respond("the red one"), nb.Reject("too much")]
    await recorded(path, script, make=make, answers=given)
    run = make(nb.RecordedModel(path)).run("Send 5 to A1", attended=False)
    assert (await run).text == "Noted."
    assert run.calls["pick"][0].output == "the red one"
    assert "too much" in run.calls["transfer"][0].output


async def test_questions_and_answers_of_an_inner_agent_replay(tmp_path):
    """Inner agents use the same recording; their questions belong to the outermost run."""
    path = tmp_path / "session.json"

    def make(model: Any) -> nb.Agent:
        inner = nb.Agent(model, name="inner", tools=[transfer], policy=[nb.review("transfer")])
        return nb.Agent(model, name="outer", tools=[inner.as_tool()])

    def step(messages: Any) -> Any:
        last = messages[-1]
        if last["role"] == "tool":
            return f"It says: {last['content'][0]['output']}"
        is_inner = messages[0]["content"][0]["text"] == "send it"
        return CALL("transfer", to="A1", amount=5) if is_inner else CALL("inner", prompt="send it")

    def scripted(path: Any) -> Any:
        return nb.RecordedModel(path, nb.ScriptedModel(step), mode="record")

    run = make(scripted(path)).run("go", attended=True, show=False)
    await run.settled()
    run.resolve(run.interrupts[0].id, nb.Restart(), by="form")
    text = (await run).text
    with nb.RecordedModel(path) as model:
        assert (await make(model).run("go", attended=False)).text == text
    assert "sent 5.0" in text


async def test_each_of_several_concurrent_runs_replays_its_own_answers(tmp_path):
    """Answers are found by their request, not by the file's order."""
    path = tmp_path / "session.json"

    def answer(messages: Any) -> str:
        return messages[0]["content"][0]["text"].upper()

    model = nb.RecordedModel(path, nb.ScriptedModel(answer), mode="record")
    agent = nb.Agent(model)
    for word in ("a", "b", "c"):
        await agent.run(word, attended=False)
    replayed = nb.Agent(nb.RecordedModel(path))
    runs = [replayed.run(word, attended=False) for word in ("c", "b", "a", "b")]
    assert [(await run).text for run in runs] == ["C", "B", "A", "B"]


async def test_equal_requests_get_their_answers_in_recorded_order_and_then_the_last(tmp_path):
    """A cell that runs again does so; an answer that was not read to its end is used again."""
    path = tmp_path / "session.json"
    agent = nb.Agent(nb.RecordedModel(path, nb.ScriptedModel(["one", "two"]), mode="record"))
    for _ in range(2):
        await agent.run("go", attended=False)
    replay = nb.RecordedModel(path)
    left = replay.stream(Request([user("go")]))
    await anext(left)
    await left.aclose()
    texts = [(await nb.Agent(replay).run("go", attended=False)).text for _ in range(3)]
    assert texts == ["one", "two", "two"]


class Says:
    """A model that streams its script."""

    name = "says"

    def __init__(self, script):
        self._script = script

    async def stream(self, request):
        for delta in self._script:
            yield delta


HOSTED = (
    HostedCall("h1", "web_search", {"query": "x"}, "done", "found", [{"url": "https://e.org"}]),
    Citation("A page", "https://e.org"),
)


async def test_every_delta_of_an_answer_is_replayed_joined(tmp_path):
    """Reasoning, text, calls, provider data, notices and usage; no discarded deltas and no waiting."""
    path = tmp_path / "session.json"
    script = [
        TextDelta("given up"),
        Discarded("cut"),
        Waiting(2, "busy"),
        ReasoningDelta("hm"),
        ReasoningDelta("m"),
        TextDelta("a "),
        TextDelta("b"),
        ToolCallDelta(0, '{"x":', "c1", "f", {"sig": "s"}),
        ToolCallDelta(1, "[1", "c2", "g"),
        ToolCallDelta(0, " 1.0}"),
        Notice("careful"),
        *HOSTED,
        Finished("tool_calls", Usage(3, 4, 0.5, 1, 2), "m-1", {"name": "p", "data": [1]}),
    ]
    model = nb.RecordedModel(path, Says(script), mode="record")
    heard = [delta async for delta in model.stream(Request([user("go")]))]
    assert heard == script
    expected = [
        ReasoningDelta("hmm"),
        TextDelta("a b"),
        ToolCallDelta(0, '{"x":1.0}', "c1", "f", {"sig": "s"}),
        ToolCallDelta(1, "[1", "c2", "g"),
        Notice("careful"),
        *HOSTED,
        script[-1],
    ]
    again = nb.RecordedModel(path, pace=0)
    assert [delta async for delta in again.stream(Request([user("go")]))] == expected
    paced = [d async for d in nb.RecordedModel(path, pace=0.0001).stream(Request([user("go")]))]
    assert paced[1:3] == [TextDelta("a "), TextDelta("b")]


async def test_an_error_of_the_model_is_recorded_and_raised_again(tmp_path):
    """A recorded error ends the replayed run too; the next equal request gets the recorded answer."""
    path = tmp_path / "session.json"
    failing = [ModelError("429: slow down"), "fine"]
    for asked in (nb.ScriptedModel(failing), None):
        agent = nb.Agent(nb.RecordedModel(path, asked))
        with pytest.raises(ModelError, match="429: slow down"):
            await agent.run("go", attended=False)
        assert (await agent.run("go", attended=False)).text == "fine"


@pytest.mark.parametrize("error", [ModelConfigError("no key"), ModelError("401: wrong key")])
async def test_a_recording_with_only_failures_is_not_written(error, tmp_path):
    """Without a key, a later auto does not replay the failure."""
    path = tmp_path / "session.json"
    for _ in range(2):
        model = nb.RecordedModel(path, nb.ScriptedModel([error]))
        with pytest.raises(type(error), match="key"):
            await nb.Agent(model).run("go", attended=False)
    assert not path.exists()
    assert (await nb.Agent(nb.RecordedModel(path, nb.ScriptedModel(["hi"]))).run("go")).text == "hi"


TEXTS = st.text(st.characters(), max_size=20)
PIECES = st.one_of(
    TEXTS.map(TextDelta),
    st.builds(ReasoningDelta, TEXTS, st.booleans()),
    st.tuples(
        st.integers(0, 2),
        st.one_of(TEXTS, st.just('{"a": [1, {"b": null}]}'), st.just("{"), st.just("[" * 300)),
        st.sampled_from(["c1", "c2", None, ""]),
        st.sampled_from(["f", "g", None, ""]),
    ).map(lambda told: ToolCallDelta(*told)),
    st.just(Discarded("cut")),
    TEXTS.map(Notice),
)


@given(st.lists(PIECES, max_size=8), TEXTS)
def test_any_answer_of_a_model_is_replayed(pieces, prompt):
    """The engine gets the same texts, calls and notices, even for invalid Unicode."""

    async def collected(model: Any) -> Any:
        whole = Collected({})
        async for delta in model.stream(Request([user(prompt)])):
            whole.add(delta)
        try:
            event = whole.event(0.0, (), scope=())
        except ModelError as error:
            return str(error).partition("(")[0]
        ids = tuple(call.model_copy(update={"id": ""}) for call in event.calls)
        return with_escaped_surrogates(event.model_copy(update={"calls": ids}).model_dump())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        model = nb.RecordedModel(path, Says([*pieces, Finished()]))
        said = asyncio.run(collected(model))
        assert asyncio.run(collected(nb.RecordedModel(path))) == said


async def test_generated_ids_and_masks_do_not_count_as_drift(tmp_path):
    """For a server without ids, nbagent creates different ids each time."""
    path = tmp_path / "session.json"
    script = [ScriptedCall("transfer", {"to": "A1", "amount": 5}, id=""), "Sent."]
    await recorded(path, script)
    for _ in range(2):
        run = banker(nb.RecordedModel(path)).run("Send 5 to A1", attended=False)
        assert (await run).text == "Sent."


async def test_allowed_differences_are_named_and_stay_readable(tmp_path):
    """Patterns or functions ignore a date or a path; the file keeps the text."""
    path = tmp_path / "session.json"

    def make(model: Any) -> nb.Agent:
        return nb.Agent(model)

    await recorded(path, ["fine"], make=make, prompt="It is 2026-11-22 in /tmp/a1")
    assert "2026-11-22" in path.read_text()
    other = "It is 2027-01-05 in /tmp/b2"
    with pytest.raises(NotRecorded):
        await make(nb.RecordedModel(path)).run(other)
    ignore = [
        r"\d{4}-\d\d-\d\d",
        lambda text: text.replace("/tmp/a1", "DIR").replace("/tmp/b2", "DIR"),
    ]
    assert (await make(nb.RecordedModel(path, ignore=ignore)).run(other)).text == "fine"


LOOKS = "sk-proj-AbCdEfGhIjKlMnOp1234"


async def test_no_secret_is_in_a_recording_and_both_sides_agree(tmp_path, monkeypatch):
    """Environment values, the client's credentials, key-like texts, and ``scrub=`` are removed."""
    path = tmp_path / "session.json"
    monkeypatch.setenv("MY_SERVICE_TOKEN", "tok-en-value-42")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "an ordinary name")
    monkeypatch.setenv("OTHER_SECRET", "ordinary")
    told = f"tok-en-value-42 {LOOKS} hunter2 client-key an ordinary name"

    def leak() -> str:
        """Tell all."""
        return told

    class Keyed(nb.ScriptedModel):
        def without_credentials(self, text: str) -> str:
            return text.replace("client-key", "•••")

    script = [CALL("leak"), f"So: {told}"]
    model = nb.RecordedModel(path, Keyed(script), mode="record", scrub="hunter2")
    await nb.Agent(model, tools=[leak]).run("go", attended=False)
    text = path.read_text()
    for secret in ("tok-en-value-42", LOOKS, "hunter2", "client-key"):
        assert secret not in text
    assert "an ordinary name" in text
    scrubbed = json.loads(text)["scrubbed"]
    assert {"MY_SERVICE_TOKEN", "scrub=", "what looks like a key"} <= set(scrubbed)
    replay = nb.RecordedModel(path, scrub="hunter2", ignore="client-key|•••")
    assert "So: •••" in (await nb.Agent(replay, tools=[leak]).run("go", attended=False)).text


async def test_c201_a_secret_from_a_model_or_a_person_is_in_no_recording(tmp_path):
    """P13: the recording has a mask, and a replay asks for the secret again."""
    path, got = tmp_path / "session.json", []

    def login(user: str, password: SecretStr) -> str:
        """Log in."""
        got.append(password.get_secret_value())
        return "in"

    def make(model: Any) -> nb.Agent:
        return nb.Agent(model, tools=[login], policy=[nb.review("login")])

    script = [CALL("login", user="ann", password="hunter2-long"), "Done."]
    given = [nb.Restart({"user": "ann", "password": "typed-by-hand"})]
    model = nb.RecordedModel(path, nb.ScriptedModel(script), mode="record")
    run = make(model).run("go", attended=True, show=False)
    await run.settled()
    run.resolve(run.interrupts[0].id, given[0], by="form")
    await run
    text = path.read_text() + repr([dump(event) for event in run.journal])
    assert "hunter2-long" not in text
    assert "typed-by-hand" not in text
    assert got == ["typed-by-hand"]
    with pytest.raises(nb.HumanInputRequired, match="was a secret"):
        await make(nb.RecordedModel(path)).run("go", attended=False)
    assert got == ["typed-by-hand"]


async def test_auto_records_once_and_then_sends_no_requests(tmp_path):
    """The file decides the mode when the model is created; ``mode`` shows it."""
    path = tmp_path / "session.json"
    model = nb.RecordedModel(path, nb.ScriptedModel(["hi"]))
    assert model.mode == "record"
    await nb.Agent(model).run("go", attended=False)
    asked = nb.ScriptedModel([])
    again = nb.RecordedModel(path, asked)
    assert again.mode == "replay"
    assert repr(again) == "RecordedModel('session.json', 'scripted', mode='replay')"
    assert (await nb.Agent(again).run("go", attended=False)).text == "hi"
    assert asked.requests == []


async def test_a_deleted_file_is_recorded_again(tmp_path):
    """A person may delete the file and run the cells again in the same kernel."""
    path = tmp_path / "session.json"
    before = []
    for text in ("one", "two"):
        model = nb.RecordedModel(path, nb.ScriptedModel([text]))
        before.append(model)
        assert (await nb.Agent(model).run("go", attended=False)).text == text
        assert len(recorded_session(path)) == 1
        path.unlink()


async def test_a_recording_that_cannot_be_written_fails_the_run_and_says_why(tmp_path, caplog):
    """A lost answer is only logged, because it already counts; the next model request fails."""
    path = tmp_path / "folder" / "session.json"
    agent = banker(nb.RecordedModel(path, nb.ScriptedModel(list(SCRIPT)), mode="record"))
    run = agent.run("Send 5 to A1", attended=True, show=False)
    await run.settled()
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    run.resolve(run.interrupts[0].id, nb.Restart(), by="form")
    with pytest.raises(ModelError, match=r"session\.json"):
        await run
    assert "an answer could not be recorded" in caplog.text


@pytest.mark.parametrize("cost", [0.5, None])
async def test_a_replay_reports_cost_where_the_recorded_model_did(tmp_path, cost):
    """A budget in dollars then works in the replay too."""
    path = tmp_path / "session.json"
    script = [TextDelta("hi"), Finished("stop", Usage(1, 1, cost))]
    await nb.Agent(nb.RecordedModel(path, Says(script))).run("go", attended=False)
    replay = nb.RecordedModel(path)
    assert replay.reports_cost is (cost is not None)
    assert (await nb.Agent(replay).run("go", attended=False)).usage.cost == cost


async def test_agents_of_one_session_share_a_recording(tmp_path):
    """Two models that record into one file, created before the file exists."""
    path = tmp_path / "session.json"
    models = [nb.RecordedModel(path, nb.ScriptedModel([name], name=name)) for name in ("a", "b")]
    for model in models:
        await nb.Agent(model).run("go", attended=False)
    replayed = [nb.RecordedModel(path, nb.ScriptedModel([], name=name)) for name in ("b", "a")]
    assert [(await nb.Agent(model).run("go")).text for model in replayed] == ["b", "a"]


async def test_a_recording_changed_by_another_process_is_not_overwritten(tmp_path):
    """Another process or a restarted cell has written the file: sessions are never mixed."""
    path = tmp_path / "session.json"
    first, second = (
        nb.RecordedModel(path, nb.ScriptedModel(["a", "b"]), mode="record") for _ in range(2)
    )
    await nb.Agent(first).run("one", attended=False)
    await nb.Agent(second).run("two", attended=False)
    with pytest.raises(ModelError, match="was changed or deleted after this process last wrote it"):
        await nb.Agent(first).run("three", attended=False)
    assert [
        entry["request"]["messages"][0]["content"][0]["text"] for entry in recorded_session(path)
    ] == ["two"]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("{}")])
async def test_a_deleted_or_changed_recording_is_refused_before_the_model_is_called(
    tmp_path, change
):
    """The answer could not be written, so it is not paid for; a new model starts the recording again."""
    path = tmp_path / "session.json"
    model = nb.ScriptedModel(["a", "b"])
    agent = nb.Agent(nb.RecordedModel(path, model, mode="record"))
    await agent.run("one", attended=False)
    change(path)
    with pytest.raises(ModelError, match="mode='record'"):
        await agent.run("two", attended=False)
    again = nb.Agent(nb.RecordedModel(path, model, mode="record"))
    assert (await again.run("two", attended=False)).text == "b"
    assert len(recorded_session(path)) == 1


async def test_a_cancelled_answer_is_in_no_recording(tmp_path):
    """The file has only complete exchanges, and no draft stays beside it."""
    path = tmp_path / "session.json"
    script = ["first", [TextDelta("abc"), nb.ScriptedModel.slow("d", delay=3600, pieces=1)]]
    agent = nb.Agent(nb.RecordedModel(path, nb.ScriptedModel(script), mode="record"))
    await agent.run("one", attended=False)
    run = agent.run("two", attended=False)
    async for event in run.events():
        if isinstance(event, TextDelta):
            await run.cancel()
    assert len(recorded_session(path)) == 1
    assert os.listdir(tmp_path) == ["session.json"]


UNREADABLE = {
    "no file": (None, "does not exist"),
    "not JSON": ("{", "cannot be read as a recording"),
    "another file": ("[]", "has no 'nbagent_recording'"),
    "a newer one": (json.dumps({"nbagent_recording": FORMAT + 1}), "newer nbagent"),
    "no session": (json.dumps({"nbagent_recording": FORMAT}), "damaged"),
    "no answer": (
        json.dumps({"nbagent_recording": FORMAT, "session": [{"number": 1, "request": {}}]}),
        "damaged",
    ),
    "a text as the request": (
        json.dumps({"nbagent_recording": FORMAT, "session": [{"number": 1, "request": "x"}]}),
        "damaged",
    ),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_invalid_recording_is_refused_where_the_model_is_created(kind, tmp_path):
    """The error names the file and what to do."""
    path = tmp_path / "session.json"
    text, expected = UNREADABLE[kind]
    if text is not None:
        path.write_text(text)
    with pytest.raises(ModelConfigError, match=expected) as caught:
        nb.RecordedModel(path, mode="replay")
    assert "session.json" in str(caught.value)


async def test_ignored_differences_may_be_numbers(tmp_path):
    """A tool's result with the time, as a number, replays; a function that returns no text is named."""
    path = tmp_path / "session.json"
    now = [1.25]

    @nb.tool
    def look() -> dict[str, Any]:
        """Look."""
        return {"at": now[0], "ok": True, "left": 3}

    def ask(**options: Any) -> nb.Run:
        model = nb.RecordedModel(path, *options.pop("script", ()), **options)
        return nb.Agent(model, tools=[look]).run("go", show=False)

    assert (
        await ask(script=[nb.ScriptedModel([ScriptedCall("look", {}), "done"])], mode="record")
    ).text == "done"
    now[0] = 1732699.5
    with pytest.raises(NotRecorded):
        await ask(mode="replay")
    assert (await ask(mode="replay", ignore=r"\d+\.\d+")).text == "done"
    with pytest.raises(
        nb.errors.NbagentError, match="'strip_none' for a recording must return text"
    ):
        await ask(mode="replay", ignore=strip_none)


def strip_none(_text: str) -> Any:
    """Forget to return the text."""


def test_invalid_arguments_are_refused(tmp_path):
    """The error lists the valid arguments."""
    path = tmp_path / "session.json"
    with pytest.raises(nb.errors.UsageError, match="mode must be 'auto', 'record' or 'replay'"):
        nb.RecordedModel(path, mode="play")  # type: ignore[arg-type]
    with pytest.raises(ModelConfigError, match="name the model"):
        nb.RecordedModel(path)
    with pytest.raises(nb.errors.UsageError, match="ignore="):
        nb.RecordedModel(path, "m", ignore="(")
    with pytest.raises(nb.errors.UsageError, match="pace"):
        nb.RecordedModel(path, "m", pace=-1)
    with pytest.raises(nb.errors.UsageError, match="a name or an object with a stream method"):
        nb.RecordedModel(path, 5)  # type: ignore[arg-type]


async def test_c386_unused_recorded_requests_are_reported(tmp_path):
    """The error has their number and describes the first one."""
    path = tmp_path / "session.json"
    agent = nb.Agent(nb.RecordedModel(path, nb.ScriptedModel(["a", "b"]), mode="record"))
    await agent.run("one", attended=False)
    await agent.run("two", attended=False)
    with (
        pytest.raises(
            nb.errors.UsageError, match=r"Unused entries of 'session\.json': 1 of 2 exch"
        ) as caught,
        nb.RecordedModel(path) as model,
    ):
        await nb.Agent(model).run("one", attended=False)
    assert 'exchange 2 (scripted): prompt "two" → "b"' in str(caught.value)


@pytest.mark.parametrize("instead", ["no rule", "answers=", "a person"])
async def test_c386_an_unused_recorded_answer_is_reported(instead, tmp_path):
    """A tool without approval makes equal requests; a person's own answer counts as the recorded one."""
    path = tmp_path / "session.json"
    await recorded(path)
    model = nb.RecordedModel(path)
    agent = banker(model)
    if instead == "no rule":
        agent = nb.Agent(model, instructions="Be exact.", tools=[transfer])
    given = {"answers": [True]} if instead == "answers=" else {}
    run = agent.run("Send 5 to A1", attended=instead == "a person", show=False, **given)
    await run.settled()
    if instead == "a person":
        run.resolve(run.interrupts[0].id, nb.Restart(), by="form")
    assert (await run).text == "Sent."
    if instead == "a person":
        model.check()
        return
    with pytest.raises(nb.errors.UsageError, match="1 of 1 human answers") as caught:
        model.check()
    assert 'answer 2 (approval of transfer {"to": "A1", "amount": 5}): approved' in str(
        caught.value
    )


async def test_c386_an_unused_answer_with_a_secret_is_not_reported(tmp_path):
    """A replay cannot use the answer, because it has only a mask."""
    path = tmp_path / "session.json"
    given = [nb.Respond(MASK)]
    await recorded(path, TYPED, make=lambda model: nb.Agent(model, tools=[pick]), answers=given)
    assert recorded_session(path)[1]["answered"]["output"] == MASK
    model = nb.RecordedModel(path)
    agent = nb.Agent(model, tools=[pick])
    assert (await agent.run("Send 5 to A1", attended=False, answers=[MASK])).text == "Noted."
    model.check()


NEAREST: dict[str, tuple[list[tuple[str, str]], tuple[str, str], int]] = {
    "the same agent": ([("cook", "go"), ("clerk", "begin")], ("clerk", "go"), 2),
    "the same agent, later": ([("cook", "go"), ("clerk", "a"), ("clerk", "b")], ("clerk", "c"), 2),
    "an agent that is told something else": (
        [("cook", "begin"), ("clerk", "go")],
        ("other", "go"),
        2,
    ),
    "nearly the same words": (
        [("clerk", "Transfer $200 to ABC123"), ("clerk", "Transfer $5 to account B7")],
        ("clerk", "Transfer $6 to account B7"),
        2,
    ),
}


@pytest.mark.parametrize("case", NEAREST)
async def test_c387_the_nearest_request_is_of_the_same_agent(case, tmp_path):
    """Another agent's request with the same words is less near."""
    path = tmp_path / "session.json"
    before, (who, prompt), number = NEAREST[case]
    model = nb.RecordedModel(path, nb.ScriptedModel(["ok"] * len(before)), mode="record")
    for name, asked in before:
        await nb.Agent(model, instructions=f"You are a {name}.").run(asked, attended=False)
    agent = nb.Agent(nb.RecordedModel(path), instructions=f"You are a {who}.")
    with pytest.raises(NotRecorded, match=f"The nearest is number {number}:"):
        await agent.run(prompt, attended=False)


async def test_c387_the_nearest_request_is_of_the_same_shape(tmp_path):
    """With a changed prompt, the second request is compared with the second recorded one."""
    path = tmp_path / "session.json"
    await recorded(path)
    call = {"type": "tool_call", "id": "c", "name": "transfer", "input": {"to": "A1", "amount": 5}}
    result = {"type": "tool_result", "id": "c", "name": "transfer", "output": "sent 5.0 to A1"}
    asked = [user("Send 5 to B2"), message("assistant", call), message("tool", result)]
    with pytest.raises(NotRecorded, match="The nearest is number 3:"):
        await banker(nb.RecordedModel(path)).run(messages=asked, attended=False)


async def test_a_history_with_files_and_records_is_stored_compactly(tmp_path):
    """A file is stored as its digest; nbagent's records and provider data are left out."""
    path = tmp_path / "session.json"
    picture = {"type": "file", "media_type": "image/png", "data": "A" * 5000}
    reply = message(
        "assistant",
        {"type": "reasoning", "text": "hm"},
        text_part("ok"),
        provider={"name": "p", "data": "secret blob"},
    )
    history = [message("user", text_part("look"), picture), reply, user("go on")]
    model = nb.RecordedModel(path, nb.ScriptedModel(["a picture"]), mode="record")
    assert [delta async for delta in model.stream(Request(history))]
    text = path.read_text()
    assert "AAAA" not in text
    assert "sha256:" in text
    assert "blob" not in text
    first = await anext(nb.RecordedModel(path, pace=0).stream(Request(history)))
    assert first == TextDelta("a picture")


def test_all_fields_of_a_request_are_compared():
    """Recordings have every field of a request, except whether it streams."""
    assert set(request_json(Request([user("go")]))) == set(Request._fields) - {"stream"}


async def test_a_hosted_tool_is_part_of_a_request_and_its_token_is_not_stored(tmp_path):
    """The recorded model knows the tool; a replay compares it."""
    path = tmp_path / "session.json"
    tool = Hosted("mcp", {"server_url": "https://e.org", "authorization": "tok"}, "docs")
    other = Hosted("mcp", {"server_url": "https://f.org", "authorization": "tok"}, "docs")
    model = nb.RecordedModel(path, nb.ScriptedModel(["fine"]), mode="record")
    with pytest.raises(nb.errors.UsageError, match="is a hosted tool"):
        model.check_hosted(tool)
    assert [delta async for delta in model.stream(Request([user("go")], hosted=[tool]))]
    assert '"tok"' not in path.read_text()
    replay = nb.RecordedModel(path)
    replay.check_hosted(tool)
    assert [delta async for delta in replay.stream(Request([user("go")], hosted=[tool]))]
    with pytest.raises(NotRecorded, match=r"f\.org"):
        await anext(replay.stream(Request([user("go")], hosted=[other])))


async def test_c200_questions_of_a_flow_are_recorded_and_replayed_through_the_environment(
    tmp_path, monkeypatch
):
    """A flow has no model, so the whole process is recorded."""
    path, ran = tmp_path / "session.json", []

    @nb.flow(name="clean")
    async def clean(rows: int, ctx: nb.ToolContext) -> str:
        answer = await ctx.ask(nb.Choose(message="Drop which?", choices=["fax", "age"]))
        ran.append(answer)
        return f"dropped {answer} of {rows}"

    monkeypatch.setenv("NBAGENT_RECORD", str(path))
    run = clean.with_options(attended=True, show=False).run(3)
    await run.settled()
    run.resolve(run.interrupts[0].id, nb.Respond("fax"), by="form")
    await run
    monkeypatch.delenv("NBAGENT_RECORD")
    monkeypatch.setenv("NBAGENT_REPLAY", str(path))
    assert (await clean.with_options(attended=False).run(3)).output == "dropped fax of 3"
    assert ran == ["fax", "fax"]


def test_an_environment_that_sets_both_record_and_replay_is_refused(monkeypatch, tmp_path):
    """A recording must not overwrite the replayed file."""
    monkeypatch.setenv("NBAGENT_RECORD", str(tmp_path / "a.json"))
    monkeypatch.setenv("NBAGENT_REPLAY", str(tmp_path / "b.json"))
    with pytest.raises(ModelConfigError, match="are both set"):
        nb.Agent(nb.ScriptedModel([]))


PROCESS = """
import asyncio, sys, nbagent as nb
async def main():
    agent = nb.Agent("gpt-5.1", tools=[])
    print((await agent.run("go", attended=False)).text)
asyncio.run(main())
print([name for name in ("openai", "httpx2") if name in sys.modules])
"""


async def test_the_environment_replays_every_model_of_a_process_and_loads_no_client(tmp_path):
    """With ``NBAGENT_REPLAY`` code that names a real model runs without a key."""
    path = tmp_path / "session.json"
    model = nb.RecordedModel(path, nb.ScriptedModel(["from the file"], name="gpt-5.1"))
    await nb.Agent(model).run("go", attended=False)
    environment = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROCESS],
        env={**environment, "NBAGENT_REPLAY": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout == "from the file\n[]\n", ran.stderr


@pytest.mark.parametrize(
    "key",
    [
        "sk-" + "a1" * 10,
        "gho_" + "a1" * 10,
        "github_pat_" + "a1" * 10,
        "hf_" + "a1" * 10,
        "xoxb-" + "a1" * 10,
        "AKIA" + "A1" * 8,
        "AIza" + "a1" * 20,
        "eyJ" + ".".join(["a1" * 10] * 3),
        "-----BEGIN PRIVATE KEY-----\na1a1",
        "-----BEGIN RSA PRIVATE KEY-----\na1a1",
    ],
)
def test_a_text_that_looks_like_a_key_is_removed_each_time(key: str) -> None:
    """A text comes again with each request, and is scrubbed again, even if it was seen."""
    scrubber = Scrubber()
    for seen in (1, 2):
        assert "a1" not in scrubber.text(f"here: {key} there")
        assert "A1" not in scrubber.text(f"here: {key} there")
        assert scrubber.counts["what looks like a key"] == 2 * seen
