"""``history=``: what a model receives of a long conversation. The run has all of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import HistoryTooLong, RunError
from nbagent.core.base.messages import Message, check, is_prompt, load
from nbagent.core.base.model import Usage
from nbagent.core.engine.sent_history import _cut

call = nb.ScriptedModel.call


def text(one: Any) -> str:
    return "".join(part.get("text", "") for part in one["content"])


def asked(number: int, size: int = 4_000) -> list[dict[str, Any]]:
    """A prompt with one call and its result of ``size`` characters, and the answer."""
    name, own = "look", f"c{number}"
    called = {"type": "tool_call", "id": own, "name": name, "input": {"n": number}}
    result = {"type": "tool_result", "id": own, "name": name, "output": "x" * size}
    return [
        {"role": "user", "content": f"Question {number}"},
        {"role": "assistant", "content": [called]},
        {"role": "tool", "content": [result]},
        {"role": "assistant", "content": f"Answer {number}"},
    ]


def conversation(count: int, size: int = 4_000) -> list[dict[str, Any]]:
    return [one for number in range(1, count + 1) for one in asked(number, size)]


async def sent(messages: Sequence[Any], prompt: str, **keep: Any) -> Sequence[Message]:
    """What the model receives."""
    model = nb.ScriptedModel(["done"])
    await nb.Agent(model, history=nb.keep(**keep)).generate(prompt, messages=messages)
    return model.requests[0].messages


async def test_c770_the_oldest_results_are_left_out_before_the_oldest_turns():
    """The calls stay, with a note in place of each result; a small result stays as it is."""
    history = conversation(4)
    whole = await sent(history, "More", tokens=10_000)
    assert list(whole[:16]) == list(load(history))
    got = await sent(history, "More", tokens=3_600)
    outputs = [part["output"] for one in got for part in one["content"] if "output" in part]
    assert [len(output) for output in outputs[2:]] == [4_000, 4_000]
    assert outputs[0] == outputs[1]
    assert "4,002 characters" in outputs[0]
    assert next(text(one) for one in got if one["role"] == "user") == "Question 1"
    got = await sent(history, "More", tokens=60)
    assert [text(one) for one in got] == ["Question 4", "Answer 4", "More"]
    assert len(await sent(conversation(40, size=10), "More", tokens=10**9)) == 161


async def test_c770_the_newest_turns_are_whole_and_have_their_prompt():
    """A turn in the middle of a task keeps the task's prompt; system messages at the beginning stay."""
    got = await sent(conversation(3), "More", turns=1)
    assert [text(one) for one in got] == ["Question 3", "Answer 3", "More"]
    steps = [call("look", n=n) for n in range(6)]
    model = nb.ScriptedModel([*steps, "done"])
    agent = nb.Agent(model, history=nb.keep(turns=2))
    agent.tool(name="look")(lambda n: f"{n}")
    system = {"role": "system", "content": "Be brief."}
    run = await agent.run("The task", messages=[system], attended=False)
    last = model.requests[-1].messages
    roles = ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert [one["role"] for one in last] == roles
    assert text(last[1]) == "The task"
    assert [part["input"] for one in last for part in one["content"] if "input" in part] == [
        {"n": 4},
        {"n": 5},
    ]
    assert len(run.messages) == 2 + 12 + 1


def test_c770_no_cut_of_any_history_separates_a_call_from_its_result():
    """Random histories and limits: P12 holds, and the last message and the last prompt are there."""
    for seed in range(300):
        rng = random.Random(seed)
        history = list(load(conversation(rng.randint(1, 12), rng.choice([10, 900, 9_000]))))
        history = history[: rng.randint(1, len(history))]
        if history[-1]["role"] == "assistant":
            history[-1:] = load([{"role": "user", "content": "More"}])
        turns = rng.choice([None, 1, 2, 5])
        tokens = rng.choice([None, 1, 50, 700, 3_000])
        cut = _cut(history, turns, tokens)
        check((*cut.messages, *load(["end"])))
        assert cut.messages[-1] is history[-1]
        prompts = [one for one in history if is_prompt(one)]
        assert prompts[-1] in cut.messages
        if cut.turns == cut.results == 0:
            assert list(cut.messages) == history


async def test_c770_the_beginning_of_a_request_changes_only_now_and_then():
    """A provider's cache needs the same beginning: a limit is passed in steps, not with every turn."""
    model = nb.ScriptedModel([*[call("look", n=n) for n in range(60)], "done"])
    agent = nb.Agent(model, history=nb.keep(tokens=5_000), max_turns=100)
    agent.tool(name="look")(lambda n: "x" * 1_000)
    await agent.run("go", attended=False)
    pairs = zip(model.requests, model.requests[1:], strict=False)
    changed = sum(b.messages[: len(a.messages)] != a.messages for a, b in pairs)
    assert 5 <= changed <= 20


async def test_c771_a_refused_conversation_is_sent_shorter_until_it_fits():
    """Later requests begin with what fits; the card says what the model did not receive; the run has everything."""

    def answer(messages: Sequence[Message]) -> Any:
        size = len(str(messages))
        return HistoryTooLong("too long") if size > 9_000 else f"{size} characters"

    model = nb.ScriptedModel(answer)
    agent = nb.Agent(model, history=nb.keep())
    history = conversation(6)
    run = agent.run("More", messages=history, attended=False)
    assert "characters" in (await run).text
    tries = len(model.requests)
    assert 2 <= tries <= 5
    assert list(run.messages[:24]) == list(load(history))
    assert "The model did not receive the oldest" in run.to_markdown()
    await agent.run("And now?", after=run, attended=False)
    assert len(model.requests) == tries + 1
    agent.history = nb.keep()
    with pytest.raises(HistoryTooLong):
        await agent.run("x" * 20_000, attended=False)
    assert len(model.requests) == tries + 2


async def test_c772_a_follow_up_leaves_out_the_message_that_was_refused():
    """The conversation continues; a retry sends the message again, and the journal has it."""
    model = nb.ScriptedModel(["one", HistoryTooLong("too long"), "two", "three"])
    agent = nb.Agent(model)
    chat = agent.chat(attended=False)
    await chat.send("first")
    refused = chat.send("x" * 1000)
    with pytest.raises(HistoryTooLong):
        await refused
    assert len(refused.messages) == 3
    assert (await chat.send("shorter")).text == "two"
    texts = ["first", "one", "shorter"]
    assert [text(one) for one in model.requests[2].messages] == texts
    assert (await refused.retry(history=nb.keep())).text == "three"
    assert text(model.requests[3].messages[-1]) == "x" * 1000


async def test_c773_a_summary_replaces_what_is_left_out_and_is_shown_as_such():
    """It is written once for what it summarizes, from the summary before it; its tokens count."""
    writer = nb.ScriptedModel(lambda m: f"S{len(writer.requests)}", usage=Usage(7, 1, cost=0.5))
    model = nb.ScriptedModel(lambda m: "fine", usage=Usage(100, 1, cost=1.0))
    agent = nb.Agent(model, history=nb.keep(turns=4, summary=writer))
    run = agent.run("More", messages=conversation(4), attended=False)
    result = await run
    first = model.requests[0].messages[0]
    count = len(writer.requests)
    assert (
        text(first)
        == f"Summary of the earlier conversation, written by a model:\nS{count}Question 3"
    )
    assert "Question 1" in text(writer.requests[0].messages[0])
    assert "look returned" in text(writer.requests[0].messages[0])
    assert "S1" in text(writer.requests[1].messages[0])
    assert result.usage.total_tokens == 101 + 8 * count
    assert f"this summary instead: S{count}" in run.to_markdown()
    await agent.run("More", messages=conversation(4), attended=False)
    assert len(writer.requests) == count
    own = nb.ScriptedModel(lambda m: "mine")
    await nb.Agent(own, history=nb.keep(turns=1, summary=True)).generate(
        "More", messages=conversation(2)
    )
    assert "mine" in text(own.requests[-1].messages[0])
    silent = nb.Agent(own, history=nb.keep(turns=1, summary=nb.ScriptedModel([""])))
    with pytest.raises(nb.errors.ModelError, match="wrote no summary"):
        await silent.generate("More", messages=conversation(2))


async def test_c879_what_is_too_long_for_its_summary_is_summarized_in_pieces():
    """A long prompt does not end the conversation; what no model takes is an error."""

    def write(messages: Sequence[Message]) -> str | Exception:
        size = len(text(messages[0]))
        return f"S{len(writer.requests)}" if size <= limit else HistoryTooLong("too long")

    limit = 12_000
    writer = nb.ScriptedModel(write, usage=Usage(7, 1))
    model = nb.ScriptedModel(lambda m: "fine", usage=Usage(100, 1))
    earlier = [
        {"role": "user", "content": "a" * 20_000 + "b" * 20_000},
        {"role": "assistant", "content": "Read."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Nothing."},
    ]
    agent = nb.Agent(model, history=nb.keep(turns=1, summary=writer))
    result = await agent.generate("More", messages=earlier)
    taken = [text(one.messages[0]) for one in writer.requests]
    written = [one for one in taken if len(one) <= limit]
    assert sum(one.count("a") for one in written) >= 20_000
    assert sum(one.count("b") for one in written) >= 20_000
    assert all("Summary of what was before" in one for one in written[1:])
    assert f"written by a model:\nS{len(taken)}" in text(model.requests[0].messages[0])
    assert result.usage.total_tokens == 101 + 8 * len(written)
    limit = 10
    with pytest.raises(HistoryTooLong):
        await agent.generate("More", messages=[*conversation(1), *earlier])


def newest(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[-2:]


async def own(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages[:1], *messages[-2:]]


HALVES: dict[str, tuple[Any, str]] = {
    "a result without its call": (lambda m: m[-1:], r"results for the tool calls \['call_1'\]"),
    "a call without its result": (lambda m: m[:-1], r"the calls \['call_1'\]"),
    "nothing": (lambda m: [], "at least one message"),
    "no list": (lambda m: 3, "must return messages"),
    "a string": (lambda m: "go", "must return messages"),
    "no messages": (lambda m: [3], "expected a dict"),
    "an error": (lambda m: m[99], "raised IndexError"),
}


@pytest.mark.parametrize("case", HALVES)
async def test_c774_a_function_that_returns_half_of_a_call_is_refused(case: str):
    """The error names the function and says what to do; the model receives nothing."""
    function, why = HALVES[case]
    model = nb.ScriptedModel([call("look"), "done"])
    agent = nb.Agent(model, history=lambda m: function(m) if len(m) > 1 else m)
    agent.tool(name="look")(lambda: "seen")
    with pytest.raises(RunError, match=rf"(?s)history function .*<lambda>.*{why}"):
        await agent.run("go", attended=False)
    assert len(model.requests) == 1


async def test_c774_a_function_chooses_what_the_model_receives():
    """Sync or async; the run has all messages."""
    for function in (newest, own):
        model = nb.ScriptedModel([call("look"), "done"])
        agent = nb.Agent(model, history=function)
        agent.tool(name="look")(lambda: "seen")
        run = await agent.run(
            "go", messages=["before", {"role": "assistant", "content": "ok"}], attended=False
        )
        assert len(model.requests[-1].messages) == (2 if function is newest else 3)
        assert len(run.messages) == 6


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: nb.Agent("demo", history=20), r"history must be nb\.keep"),
        (lambda: nb.Agent("demo", history=[]), "pass messages= to agent.run"),
        (lambda: nb.keep(turns=0), "turns must be an integer of at least 1, got 0"),
        (lambda: nb.keep(tokens=1.5), "tokens must be an integer"),
        (lambda: nb.keep(summary=3), "summary must be True, False or a model"),
        (lambda: nb.keep(characters=3), "unexpected keyword argument 'characters'"),
    ],
)
def test_c774_a_wrong_history_is_refused_where_it_is_written(wrong: Any, why: str):
    """Before any run."""
    with pytest.raises((nb.errors.UsageError, TypeError), match=why):
        wrong()
