"""Recorded sessions of other frameworks: through the adapters, the recipe for AG-UI, and a loop that speaks ACP."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import Interrupted
from nbagent.notebook.view.view import SingleRunView
from nbagent.others.langgraph import Adapter
from nbagent.others.legs import Ask, Leg, Progress
from nbagent.others.watch import check_ids
from tests.integration.test_pages import blocks_of
from tests.shared import recorded


def adapter() -> Adapter:
    """An adapter without a graph."""
    made = Adapter.__new__(Adapter)
    made._known = {}
    return made


def pauses(name: str) -> list[SimpleNamespace]:
    """The interrupts of a recording."""
    ends = [
        e for leg in recorded(name)["legs"] for e in leg["events"] if e["type"] == "RUN_FINISHED"
    ]
    found = [one for end in ends for one in (end.get("outcome") or {}).get("interrupts", ())]
    raw = [one["metadata"]["langgraph"]["raw"] for one in found]
    return [
        SimpleNamespace(id=one["id"], value=value, response_schema=None)
        for one, value in zip(found, raw, strict=True)
    ]


def test_recorded_interrupts_become_approvals_and_questions() -> None:
    """The middleware's pauses are approvals of their calls; a text is a question."""
    first, second = pauses("langgraph_hitl_per_call")[:2]
    asks = [adapter()._asks(one, [])[0] for one in (first, second)]
    assert [(one.kind, one.name, one.call) for one in asks] == [
        ("approval", "send_email", "c2"),
        ("approval", "send_email", "c3"),
    ]
    assert asks[0].message == ""
    (typed,) = adapter()._asks(pauses("langgraph_typed")[0], [])
    assert (typed.kind, typed.message) == ("question", "Which trip?")


def test_a_recorded_batch_of_the_middleware_becomes_approvals_of_its_calls() -> None:
    """LangGraph's own stream: two calls of one tool, which may be edited, found by their inputs."""
    written = recorded("langgraph_native")["events"][-1][1]
    made = [
        each for each in ast.walk(ast.parse(written, mode="eval")) if isinstance(each, ast.Call)
    ]

    def arguments(name: str) -> dict[str, Any]:
        found = [each for each in made if getattr(each.func, "id", "") == name]
        return {k.arg or "": ast.literal_eval(k.value) for k in found[-1].keywords}

    interrupt = SimpleNamespace(**arguments("Interrupt"))
    asks = adapter()._asks(interrupt, arguments("AIMessage")["tool_calls"])
    assert [(a.kind, a.call, a.input["to"], a.editable) for a in asks] == [
        ("approval", "c2", "ada@x", True),
        ("approval", "c3", "bob@x", True),
    ]


# --- AG-UI


def answered(payload: Any) -> Any:
    """What a payload says; frameworks have several words for it."""
    if not isinstance(payload, dict) or not {"approved", "accepted"} & set(payload):
        return payload
    return payload.get("approved", payload.get("accepted")), payload.get("editedArgs")


class Recorded:
    """An agent that answers as recorded: the leg whose request had the same answers."""

    def __init__(self, name: str) -> None:
        self.legs = recorded(name)["legs"]
        self.requests: list[Any] = []

    async def send(self, messages: Any, resume: Any) -> Any:
        """The events of a leg."""
        self.requests.append((messages, resume))
        told = {one["interruptId"]: answered(one.get("payload")) for one in resume}
        for leg in self.legs:
            given = leg["request"].get("resume") or ()
            if {one["interruptId"]: answered(one.get("payload")) for one in given} != told:
                continue
            results = {m["toolCallId"] for m in leg["request"]["messages"] if m["role"] == "tool"}
            if results <= {m["toolCallId"] for m in messages if m["role"] == "tool"}:
                for event in leg["events"]:
                    yield event
                return
        raise AssertionError(f"not recorded: {resume}")


def recipes() -> dict[str, Any]:
    """The names in the page's blocks."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of("others"):
        exec(block, names)
    return names


async def played(name: str, answers: Any, ours: tuple[str, ...] = ()) -> tuple[Recorded, nb.Run]:
    """The run of the recipe with a recording, after its end or in its pause."""
    names, agent = recipes(), Recorded(name)

    @nb.flow(tools=["transfer"])
    async def remote(prompt: str, ctx: nb.ToolContext) -> str:
        text: str = await names["agui"](agent.send, prompt, ctx, ours)
        return text

    return agent, remote.with_options(answers=answers).run("pay")


def rows(run: nb.Run) -> list[tuple[str, str, Any]]:
    """The calls in the card."""
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    calls = [i for i in view.snapshot().items if i.type == "call" and i.name != "remote"]
    return [(i.name, i.state, i.result) for i in calls]


def asked(run: nb.Run) -> list[tuple[str, Any]]:
    """The tools and inputs of the approvals."""
    found = [e for e in run.journal if isinstance(e, Interrupted)]
    return [(e.tool_name, dict(e.input)) for e in found if e.kind == "approval"]


FIRST = [("transfer", {"to": "ABC", "amount": 50}), ("transfer", {"to": "XYZ", "amount": 7})]


async def test_recorded_legs_of_pydantic_ai_pass_through_the_recipe_for_ag_ui() -> None:
    """An edited, a rejected and a deferred call: the resume and the messages are those that it accepted."""
    edited = nb.Restart(input={"to": "EVE", "amount": 1})
    given = {"transfer": [edited, nb.Reject("no")], "remote": "Monday"}
    agent, run = await played("pydantic_ai_approvals", given, ("ask_user",))
    assert (await run).text == "All done."
    assert asked(run) == FIRST
    assert rows(run)[:3] == [
        ("look", "done", "3"),
        ("transfer", "done", "sent 1.0 to EVE"),
        ("transfer", "rejected", None),
    ]
    messages, _ = agent.requests[-1]
    calls = [call["id"] for m in messages for call in m.get("toolCalls", ())]
    answers = [(m["toolCallId"], m["content"]) for m in messages if m["role"] == "tool"]
    assert calls == ["c0", "c1", "c2", "c3"]
    assert answers == [("c0", "3"), ("c3", "Monday")]


async def test_recorded_legs_of_the_agent_framework_pass_through_the_recipe_for_ag_ui() -> None:
    """Both approved: it ends. One rejected: it asks for that one again, and so does the card."""
    _, run = await played("agent_framework_approvals", {"transfer": True})
    assert (await run).text == "All done."
    assert asked(run) == FIRST
    assert ("transfer", "done", "sent 7.0 to XYZ") in rows(run)
    wrong = {"transfer": [nb.Restart(input={"to": "ABC", "amount": "much"}), True]}
    _, run = await played("agent_framework_approvals", wrong)
    with pytest.raises(nb.errors.InvalidAnswer, match="whole number"):
        await run
    _, run = await played("agent_framework_approvals", {"transfer": [True, nb.Reject("no")]})
    with pytest.raises(nb.HumanInputRequired):
        await run
    assert asked(run) == [*FIRST, FIRST[1]]


async def test_recorded_legs_of_langgraph_pass_through_the_recipe_for_ag_ui() -> None:
    """Pauses whose schema is unknown are questions; what the server refuses fails the run with its words."""
    _, run = await played("langgraph_typed", [{"nights": 2, "hotel": "Roma"}])
    await run
    _, run = await played("langgraph_typed", [{"nights": 0}])
    with pytest.raises(nb.errors.ToolFailed, match="greater than or equal to 1"):
        await run
    _, run = await played("langgraph_hitl_per_call", [{"type": "approve"}] * 2)
    with pytest.raises(nb.errors.ToolFailed, match="multiple pending interrupts"):
        await run
    shown = [e.metadata for e in run.journal if isinstance(e, Interrupted)]
    assert [each["pause"]["toolCallId"] for each in shown] == ["c2", "c3"]
    assert asked(run) == []


# --- the Claude Agent SDK


class Client:
    """A stand-in for ``ClaudeSDKClient``: asks before two calls, and says what came of it."""

    def __init__(self, options: SimpleNamespace) -> None:
        self.options = options

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def query(self, prompt: str) -> None: ...

    async def receive_response(self) -> Any:
        """The messages of one turn."""
        asks = self.options.can_use_tool
        found = [await asks("Bash", {"command": each}, None) for each in ("ls", "rm -r .")]
        yield SimpleNamespace(content=[SimpleNamespace(text="I looked. ")])
        yield SimpleNamespace(result=str([vars(each) for each in found]))


async def test_the_recipe_for_the_claude_agent_sdk_asks_before_each_tool() -> None:
    """An edited input and the person's words reach the SDK; its text is in the card."""
    names = recipes()
    for each in (
        "ClaudeAgentOptions",
        "PermissionResultAllow",
        "PermissionResultDeny",
        "TextBlock",
    ):
        names[each] = SimpleNamespace
    names["ClaudeSDKClient"] = Client
    given = {"Bash": [nb.Restart(input={"command": "ls -a"}), nb.Reject("not that")]}
    run = names["claude"].with_options(answers=given).run("tidy up")
    text = (await run).text
    assert text == "[{'updated_input': {'command': 'ls -a'}}, {'message': 'not that'}]"
    assert "I looked." in run.to_html()


# --- ACP


async def test_a_recorded_session_of_acp_has_its_text_calls_and_permissions_in_the_card() -> None:
    """The person's answers are those that the recorded client sent."""
    messages = recorded("acp_opencode")["messages"]
    sent: dict[Any, str] = {}

    @nb.flow(tools=["write", "edit"])
    async def remote(prompt: str, ctx: nb.ToolContext) -> None:
        calls: dict[str, dict[str, Any]] = {}
        for message in (each["msg"] for each in messages if each["dir"] == "agent"):
            match message:
                case {"params": {"update": {"sessionUpdate": "agent_message_chunk"} as update}}:
                    ctx.write(update["content"]["text"])
                case {"params": {"update": {"toolCallId": call_id} as update}}:
                    call = calls.setdefault(call_id, {"name": update["title"]})
                    call |= {"input": update.get("rawInput") or call.get("input")}
                    if update["status"] in ("completed", "failed"):
                        row = ctx.row(call["name"], call["input"], id=call_id)
                        text = update["content"][0]["content"]["text"]
                        is_done = update["status"] == "completed"
                        if is_done or not call.get("rejected"):
                            await (row.done(text) if is_done else row.failed(text))
                case {"id": id_, "method": "session/request_permission", "params": params}:
                    call, kind = calls[params["toolCall"]["toolCallId"]], "allow_once"
                    try:
                        await ctx.approve(
                            call["name"], call["input"], id=params["toolCall"]["toolCallId"]
                        )
                    except nb.Rejected:
                        call["rejected"], kind = True, "reject_once"
                    options = {each["kind"]: each["optionId"] for each in params["options"]}
                    sent[id_] = options[kind]

    run = remote.with_options(answers={"write": True, "edit": nb.Reject("no")}).run("write files")
    await run
    replies = [each["msg"] for each in messages if each["dir"] == "client"]
    accepted = {
        m["id"]: m["result"]["outcome"]["optionId"]
        for m in replies
        if "outcome" in m.get("result", ())
    }
    assert sent == accepted == {0: "once", 2: "reject"}
    assert [(name, state) for name, state, _ in rows(run)] == [
        ("todowrite", "done"),
        ("write", "done"),
        ("edit", "rejected"),
    ]


# --- the adapter without recordings


BATCHED = {
    "action_requests": [{"name": "pay", "args": {"n": 1}}, {"name": "ask", "args": {}}],
    "review_configs": [
        {"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]},
        {"action_name": "ask", "allowed_decisions": ["respond"]},
    ],
}


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"input": {"n": 1}, "edited": False}, {"type": "approve"}),
        (
            {"input": {"n": 2}, "edited": True},
            {"type": "edit", "edited_action": {"name": "pay", "args": {"n": 2}}},
        ),
        ({"rejected": None}, {"type": "reject"}),
        ({"rejected": "no"}, {"type": "reject", "message": "no"}),
    ],
)
def test_answers_become_the_decisions_of_the_middleware_in_order(
    answer: dict[str, Any], decision: dict[str, Any]
) -> None:
    """Equal calls keep their own ids; a tool that only a person answers is a question."""
    calls = [{"name": "pay", "args": {"n": 1}, "id": "c1"}]
    interrupt = SimpleNamespace(id="i", value=BATCHED, response_schema=None)
    asks = adapter()._asks(interrupt, calls)
    assert [(one.kind, one.call) for one in asks] == [("approval", "c1"), ("respond", "")]
    answers = dict(zip((one.id for one in asks), (answer, {"value": "blue"}), strict=True))
    resumed = adapter()._values(Leg(**Leg.paused(asks)), answers)
    respond = {"type": "respond", "message": "blue"}
    assert resumed == {"i": {"decisions": [decision, respond]}}


async def test_a_result_without_a_call_has_a_row_of_its_own() -> None:
    """With or without an id; a second result of the same call is not shown."""

    @nb.flow
    async def remote(ctx: nb.ToolContext) -> None:
        progress = Progress(ctx)
        await progress.done("tool", None, "", "found")
        await progress.done("look", {"a": 1}, "c7", "gone", failed=True)
        await progress.done("look", {"a": 1}, "c7", "again")

    run = remote.run()
    await run
    assert rows(run) == [("tool", "done", "found"), ("look", "failed", "gone")]


@pytest.mark.parametrize("ids", [["a", "a"], [""], ["a", ""]])
def test_pauses_with_equal_or_empty_ids_are_refused(ids: list[str]) -> None:
    """An answer could reach the wrong one."""
    with pytest.raises(UsageError, match="could reach the wrong one"):
        check_ids([Ask(id=one, kind="question") for one in ids])
