"""The demo model: a good story with the quickstart's tools, and an honest one with other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.messages import Message, dumps, message, text_part, user
from nbagent.core.base.model import Request, TextDelta, ToolSpec
from nbagent.core.state.fold import edit_note, rejection_text
from nbagent.models.demo.brain import Reply, reply
from nbagent.models.demo.model import PACE, demo_model
from nbagent.models.demo.sample import fits
from nbagent.models.demo.talk import parse_talk
from nbagent.models.openai.chat import ChatApi
from nbagent.models.openai.encoding import Settings
from nbagent.models.resolve import resolve
from tests.shared import published

STRING = {"type": "string"}


def tool(name: str, description: str = "", **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name, description, schema)


ASK = tool(
    "ask_question",
    "Ask the person a question.",
    question=STRING,
    choices={"type": "array", "items": STRING},
)
BALANCE = tool("get_balance", "The balance of an account.", account=STRING)
TRANSFER = tool("transfer_money", "Transfer money.", to_account=STRING, amount={"type": "number"})
MAIL = tool("send_email", "Send an email.", to=STRING, subject=STRING, body=STRING)
QUICKSTART = [ASK, BALANCE, TRANSFER, MAIL]


@dataclass
class Played:
    """The calls, text and messages of a conversation."""

    calls: list[tuple[str, Mapping[str, Any]]]
    text: str
    messages: list[Message]


def play(
    prompt: str,
    tools: Sequence[ToolSpec] = (),
    results: Mapping[str, Any] | None = None,
    *,
    before: Sequence[Message] = (),
    output_schema: dict[str, Any] | None = None,
) -> Played:
    """Run the demo model with tools that answer from ``results``, and check each call."""
    messages = [*before, user(prompt)]
    calls: list[tuple[str, Mapping[str, Any]]] = []
    schemas = {spec.name: spec.input_schema for spec in tools}
    while True:
        request = Request(messages, tools=tools, output_schema=output_schema)
        said = answered(request)
        parts = []
        for index, (name, value) in enumerate(said.calls):
            assert fits(schemas[name], value), "only tools that exist, with input that fits"
            call_id = f"c{len(messages)}-{index}"
            parts.append({"type": "tool_call", "id": call_id, "name": name, "input": dict(value)})
        calls += said.calls
        messages.append(message("assistant", text_part(said.text), *parts))
        if not parts:
            return Played(calls, said.text, messages)
        assert len(messages) < 60, "it comes to an end"
        outputs = [
            {
                "type": "tool_result",
                "id": part["id"],
                "name": part["name"],
                "output": (results or {}).get(part["name"], "fine"),
            }
            for part in parts
        ]
        messages.append(message("tool", *outputs))


def answered(request: Request) -> Reply:
    body = ChatApi(Settings("demo")).body(request, "demo")
    return reply(parse_talk(json.loads(body)))


def test_planning_asks_and_uses_the_answer() -> None:
    """A newcomer first sees text, a question with choices, and a plan that uses the answer."""
    played = play("Plan a BBQ for the team", QUICKSTART, {"ask_question": "Halloumi and corn"})
    ((name, value),) = played.calls
    assert name == "ask_question"
    assert "grill" in value["question"]
    assert "Halloumi and corn" in value["choices"]
    assert "**Halloumi and corn**" in played.text
    assert "Italian" in play("Plan a dinner for tonight", [ASK]).calls[0][1]["choices"]


PROMPTS = {
    "Transfer $200 to account ABC123": (
        QUICKSTART,
        [
            ("get_balance", {"account": "checking"}),
            ("transfer_money", {"to_account": "ABC123", "amount": 200.0}),
        ],
    ),
    "Transfer $1,250.50 to account XYZ789, please": (
        [TRANSFER],
        [("transfer_money", {"to_account": "XYZ789", "amount": 1250.5})],
    ),
    "What is the balance of account A7?": (QUICKSTART, [("get_balance", {"account": "A7"})]),
    "Write to Ada that the report is late": (
        QUICKSTART,
        [
            (
                "send_email",
                {
                    "to": "ada@example.com",
                    "subject": "The report is late",
                    "body": "Hi Ada,\n\nThe report is late. I wanted you to know as soon as possible."
                    "\n\nBest wishes\n",
                },
            )
        ],
    ),
}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_leads_to_the_requested_calls(prompt: str) -> None:
    """The model calls the tools that the prompt asks for, with the prompt's values, and no others."""
    tools, calls = PROMPTS[prompt]
    assert play(prompt, tools).calls == calls


def test_a_number_beyond_all_is_not_used() -> None:
    """A person may paste the digits of pi."""
    digits, order = "3" * 5_000, tool("order", count={"type": "integer"})
    assert play(f"Order {digits}", [order]).calls == [("order", {"count": 1})]
    assert play(f"Pay {digits}", [TRANSFER]).calls[0][1]["amount"] == 50


def test_an_invitation_leads_to_an_email() -> None:
    """The prompt is the quickstart's."""
    ((name, value),) = play("Invite Ada to the demo on Friday", QUICKSTART).calls
    assert (name, value["to"]) == ("send_email", "ada@example.com")
    assert value["subject"] == "Invitation to the demo on Friday"


@pytest.mark.parametrize("reason", [None, "Not today"])
@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Transfer $200 to account ABC123", "transfer_money"),
        ("Write to Ada that the report is late", "send_email"),
        ("Plan a BBQ", "ask_question"),
        ("go", "own_tool"),
    ],
)
def test_a_rejection_is_reported_as_not_done(prompt: str, name: str, reason: str | None) -> None:
    """A rejected call is never reported as done; the reason is repeated where it fits."""
    tools = [*QUICKSTART, tool("own_tool")] if name != "own_tool" else [tool("own_tool")]
    played = play(prompt, tools, {name: rejection_text(name, reason)})
    assert any(word in played.text for word in ("did not", "refused", "won't ask"))
    assert "A person rejected" not in played.text
    assert "Done" not in played.text
    if reason and name != "ask_question":
        assert reason in played.text


@pytest.mark.parametrize("name", ["transfer_money", "own_tool"])
def test_an_edit_is_reported_as_edited(name: str) -> None:
    """The report has the person's input."""
    edited = {"to_account": "OTHER9", "amount": 5.0}
    result = {name: f"{edit_note(edited)}\nok then"}
    played = play(
        "Transfer $200 to account ABC123",
        [tool(name, **TRANSFER.input_schema["properties"])],
        result,
    )
    assert "change" in played.text
    assert "OTHER9" in played.text
    assert "ABC123" not in played.text
    assert "ok then" in played.text


@pytest.mark.parametrize("name", ["transfer_money", "own_tool"])
def test_a_failure_is_reported_as_a_failure(name: str) -> None:
    """The report claims no success."""
    played = play(
        "Transfer $200 to account ABC123",
        [tool(name, **TRANSFER.input_schema["properties"])],
        {name: f"The tool {name} failed: ValueError: no such account"},
    )
    assert "failed" in played.text
    assert "no such account" in played.text
    assert "Done" not in played.text


def test_unknown_tools_are_called_once_each_and_summed_up() -> None:
    own = [
        tool("run_sql", sql=STRING),
        tool("fit", kind={"enum": ["linear", "tree"]}),
        *map(tool, "xyz"),
    ]
    played = play("go", own, {"run_sql": {"rows": 3}})
    assert [name for name, _ in played.calls] == ["run_sql", "fit", "x", "y", "z"]
    assert dict(played.calls)["run_sql"] == {"sql": "example"}
    assert all(f"**{spec.name}**" in played.text for spec in own)
    assert '{"rows":3}' in played.text
    again = play("thanks", own, before=played.messages)
    assert again.calls == []
    named = play("now fit a tree", own, before=played.messages)
    assert named.calls == [("fit", {"kind": "tree"})]


def test_a_known_tool_name_with_other_parameters_gets_a_sample() -> None:
    """A tool with a known name may have other parameters."""
    mine = tool("transfer_money", "Mine.", iban=STRING, cents={"type": "integer", "minimum": 5})
    ((name, value),) = play("Transfer 200 to account ABC123", [mine]).calls
    assert (name, value["cents"]) == ("transfer_money", 200)


def test_a_tool_that_no_input_fits_is_mentioned_and_not_called() -> None:
    """The text says so, and no wrong input is sent."""
    played = play("go", [tool("odd", x=False), tool("even")])
    assert [name for name, _ in played.calls] == ["even"]
    assert "`odd`" in played.text
    assert "`odd`" in play("go", [tool("odd", x=False)]).text


def test_without_tools_it_answers_in_markdown_and_follows_up() -> None:
    """The first answer has a list, code and formulas; the second one follows up."""
    first = play("Hello! What can you do?")
    for part in ("demo model", "\n- ", "```python", "$$", "Hello! What can you do?"):
        assert part in first.text
    second = play("and now?", before=first.messages)
    assert second.text != first.text
    assert "and now?" in second.text


def test_a_wanted_output_type_is_filled() -> None:
    """With ``output_type`` the last text is JSON that fits the type."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    played = play("go", [tool("x")], output_schema=schema)
    assert [name for name, _ in played.calls] == ["x"]
    assert fits(schema, json.loads(played.text))


@settings(deadline=None, max_examples=50)
@given(
    prompt=st.text(max_size=60)
    | st.sampled_from(["transfer", "pay 1", "write", "plan", "$", "to"]),
    names=st.lists(
        st.sampled_from([*(spec.name for spec in QUICKSTART), "a", "do_it", "getBalance"]),
        unique=True,
    ),
    results=st.text(max_size=40),
)
def test_any_prompt_ends_and_calls_only_existing_tools(
    prompt: str, names: list[str], results: str
) -> None:
    """For any prompt and results, calls fit their schemas (``play`` checks this), and a text ends the turn."""
    specs = [next((s for s in QUICKSTART if s.name == name), tool(name)) for name in names]
    assert play(prompt, specs, dict.fromkeys(names, results)).text
    assert play(prompt, specs, dict.fromkeys(names, dumps([results]))).text


def test_a_hundred_real_tools_are_handled() -> None:
    """With a whole MCP server the model tries some tools, and says that there are more."""
    cases = published("github-mcp-tools")
    specs = [ToolSpec(case["id"], case["title"], case["schema"]) for case in cases]
    played = play("go", specs)
    assert len(played.calls) == 12
    assert "There is more to try" in played.text


def test_speed_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """NBAGENT_DEMO_SPEED sets the speed of the words; invalid values are refused at once."""
    for told, pace in (("1", PACE), ("2", PACE / 2), ("0", 0.0), ("inf", 0.0)):
        monkeypatch.setenv("NBAGENT_DEMO_SPEED", told)
        assert _seconds() == pace
    for told in ("fast", "-1", "nan", ""):
        monkeypatch.setenv("NBAGENT_DEMO_SPEED", told)
        with pytest.raises(ModelConfigError, match="NBAGENT_DEMO_SPEED"):
            resolve("demo")


def _seconds() -> float:
    from nbagent.models.demo.model import _pace  # noqa: PLC0415  the one place that looks inside

    return _pace()


async def test_words_arrive_one_by_one_through_the_real_client() -> None:
    """A newcomer's run uses the real client, stream and parser."""
    request = Request([user("hi")])
    async with demo_model(pace=0.0001) as model, aclosing(model.stream(request)) as deltas:
        found = [delta async for delta in deltas]
    texts = [delta.text for delta in found if isinstance(delta, TextDelta)]
    assert len(texts) > 50
    assert "".join(texts) == answered(request).text
    assert found[-1].usage.output_tokens > 50
