"""Tutorials of other frameworks, written with nbagent; ``docs/coming-from.md`` names the tests.

Each test follows an example of its framework's documentation, as a live run with a
person who answers as the form does.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import nbagent as nb
from tests.until import until

call = nb.ScriptedModel.call
PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


def test_the_page_names_exactly_these_tests() -> None:
    """Readers who look up a framework find its tests."""
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_the_page_names_exactly_these_tests"}


async def pending_question(run: nb.Run) -> nb.PendingInterrupt:
    """The question that the run waits for."""
    await run.settled()
    assert run.status == "interrupted", run
    return run.interrupts[0]


def live(agent: nb.Agent, prompt: str = "go", **options: Any) -> nb.Run:
    return agent.run(prompt, attended=True, show=False, **options)


# --- LangGraph: a custom graph is a flow, and interrupt() is ctx.ask


@pytest.mark.parametrize("published", [True, False])
async def test_langgraph_approve_or_reject(*, published: bool) -> None:
    """An approval node that routes to the next node, or to the end."""

    @nb.flow
    async def publish(draft: str, ctx: nb.ToolContext) -> str:
        try:
            await ctx.ask(nb.Confirm(f"Publish {draft!r}?"))
        except nb.Rejected:
            return "kept as a draft"
        return "published"

    run = publish.with_options(attended=True, show=False).run("News")
    question = await pending_question(run)
    await (run.approve(question) if published else run.reject(question))
    assert (await run).output == ("published" if published else "kept as a draft")


async def test_langgraph_review_and_edit() -> None:
    """A node that shows the generated text and continues with the person's edit."""
    written = nb.Agent(nb.ScriptedModel(["A poam."]), name="writer")

    @nb.flow
    async def write(topic: str, ctx: nb.ToolContext) -> str:
        draft = (await written.run(f"A poem on {topic}")).text
        return await ctx.ask("Look it over", reply=str, value=draft)

    run = write.with_options(attended=True, show=False).run("spring")
    question = await pending_question(run)
    await run.respond(question, "A poem.")
    assert (await run).output == "A poem."
    assert [call.output for call in run.calls["write"]] == ["A poem."]


async def test_langgraph_validate_in_a_loop() -> None:
    """A node that asks until the answer is valid: by the answer's type, and by a loop."""

    @nb.flow
    async def sign_up(ctx: nb.ToolContext) -> str:
        question = "How old are you?"
        while True:
            age = await ctx.ask(question, reply=Annotated[int, Field(ge=0)])
            if age >= 18:
                return f"{age}, welcome"
            question = f"{age} is too young. How old are you?"

    run = sign_up.with_options(attended=True, show=False).run()
    question = await pending_question(run)
    with pytest.raises(nb.errors.InvalidAnswer):
        run.respond(question, "old enough")
    with pytest.raises(nb.errors.InvalidAnswer):
        run.respond(question, -1)
    await run.respond(question, 12)
    again = await pending_question(run)
    assert again.metadata["message"] == "12 is too young. How old are you?"
    await run.respond(again, 30)
    assert (await run).output == "30, welcome"


async def test_langgraph_parallel_interrupts() -> None:
    """Two nodes interrupt at once; both are resumed, in any order."""

    @nb.flow
    async def profile(ctx: nb.ToolContext) -> dict[str, Any]:
        name, age = await asyncio.gather(ctx.ask("Name?"), ctx.ask("Age?", reply=int))
        return {"name": name, "age": age}

    run = profile.with_options(attended=True, show=False).run()
    await pending_question(run)
    await until(lambda: len(run.interrupts) == 2)
    first, second = run.interrupts
    await run.respond(second, 36)
    await run.respond(first, "Ada")
    assert (await run).output == {"name": "Ada", "age": 36}


async def test_langgraph_an_interrupt_inside_a_tool_that_a_node_calls() -> None:
    """A node calls a tool with an approval; earlier steps of the node run once."""
    booked: list[str] = []

    @nb.tool(approval=True, editable=["hotel"])
    def book(hotel: str) -> str:
        booked.append(hotel)
        return f"booked {hotel}"

    @nb.flow(tools=[book])
    async def trip(city: str, ctx: nb.ToolContext) -> str:
        hotels = await ctx.step("search", lambda: [f"{city} Inn"])
        return await ctx.call(book, hotel=hotels[0])

    run = trip.with_options(attended=True, show=False).run("Rome")
    question = await pending_question(run)
    assert question.path == ("trip", "book")
    await run.restart(question, new_input={"hotel": "Stella"})
    assert "booked Stella" in str((await run).output)
    assert booked == ["Stella"]


async def test_langgraph_a_thread_is_continued(tmp_path: Path) -> None:
    """``thread_id`` and a checkpointer correspond to the run's id and its store."""
    done: list[str] = []

    @nb.flow
    async def import_file(name: str, ctx: nb.ToolContext) -> str:
        await ctx.step("load", lambda: done.append(name))
        kept = await ctx.ask("Keep duplicates?", reply=Literal["yes", "no"])
        return f"{name}: {kept}"

    store = nb.SQLiteStore(tmp_path / "runs.db")
    first = import_file.with_options(store=store, attended=True, show=False).run("a.csv")
    await pending_question(first)
    again = await nb.open_run(first.id, agent=import_file, store=store, attended=True, show=False)
    await again.respond(await pending_question(again), "no")
    assert (await again).output == "a.csv: no"
    assert done == ["a.csv"]


# --- LangChain: HumanInTheLoopMiddleware(interrupt_on=…) and its four decisions


@pytest.mark.parametrize(
    ("decision", "told", "ran"),
    [
        ("approve", "sent to ada: hi", ["hi"]),
        ("edit", "sent to ada: hello", ["hello"]),
        ("reject", "too short", []),
        ("respond", "she has left the company", []),
    ],
)
async def test_langchain_the_four_decisions(decision: str, told: str, ran: list[str]) -> None:
    """approve, edit, reject and respond of one action request."""
    sent: list[str] = []

    def send_email(to: str, body: str) -> str:
        sent.append(body)
        return f"sent to {to}: {body}"

    def read_email(number: int) -> str:
        return f"mail {number}"

    agent = nb.Agent(
        nb.ScriptedModel(
            [[call("read_email", number=1), call("send_email", to="ada", body="hi")], "Ok."]
        ),
        tools=[send_email, read_email],
        policy=[nb.review("send_email", editable=True, message="Mail goes out"), nb.allow("*")],
    )
    run = live(agent)
    request = await pending_question(run)
    assert (request.tool_name, request.input) == ("send_email", {"to": "ada", "body": "hi"})
    match decision:
        case "approve":
            await run.restart(request)
        case "edit":
            await run.restart(request, new_input={"to": "ada", "body": "hello"})
        case "reject":
            await run.reject(request, "too short")
        case "respond":
            await run.respond(request, "she has left the company")
    assert (await run).text == "Ok."
    assert told in str(run.calls["send_email"][-1].output)
    assert sent == ran


# --- OpenAI Agents SDK: needs_approval, RunState, agents as tools


async def test_openai_agents_approval_decided_by_an_async_predicate() -> None:
    """``needs_approval=`` as an async function of the call's parameters."""
    ran: list[str] = []

    async def is_private(input: Any) -> bool:  # noqa: A002
        await asyncio.sleep(0)
        return bool(input.city == "Oakland")

    agent = nb.Agent(
        nb.ScriptedModel(
            [[call("temperature", city="Rome"), call("temperature", city="Oakland")], "Warm."]
        )
    )

    @agent.tool(approval=is_private)
    def temperature(city: str) -> str:
        ran.append(city)
        return f"20 degrees in {city}"

    run = live(agent)
    question = await pending_question(run)
    assert (question.input, ran) == ({"city": "Oakland"}, ["Rome"])
    await run.restart(question)
    assert (await run).text == "Warm."
    assert ran == ["Rome", "Oakland"]


async def test_openai_agents_interruptions_saved_as_json_and_resumed() -> None:
    """``result.interruptions``, ``state.to_json()``, and a second run from that state."""

    def agent_that(*says: Any) -> nb.Agent:
        agent = nb.Agent(nb.ScriptedModel(list(says)))

        @agent.tool(approval=True)
        def cancel_order(order: int) -> str:
            return f"cancelled {order}"

        return agent

    first = await agent_that(call("cancel_order", order=7)).generate("Cancel order 7")
    saved = json.dumps(first.messages)

    later = agent_that("Done.")
    messages = json.loads(saved)
    approvals = [nb.tool_restart(i) for i in later.interrupts(messages)]
    response = await later.generate(messages=messages, tool_restarts=approvals)
    assert (response.finish_reason, response.text) == ("stop", "Done.")


async def test_openai_agents_an_agent_as_a_tool_with_approvals_at_two_layers() -> None:
    """The inner agent's call and a tool inside need approvals; both are on the outer run."""
    weather = nb.Agent(
        nb.ScriptedModel([call("forecast", city="Rome"), "Sunny."]),
        name="weather",
        policy=nb.review("forecast"),
    )

    @weather.tool
    def forecast(city: str) -> str:
        return f"sun over {city}"

    desk = nb.Agent(
        nb.ScriptedModel([call("weather", prompt="Rome?"), "Take sunglasses."]),
        name="desk",
        tools=[weather.as_tool()],
        policy=nb.review("weather"),
    )
    run = live(desk)
    paths = []
    for _ in range(2):
        question = await pending_question(run)
        paths.append(question.path)
        await run.restart(question)
    assert (await run).text == "Take sunglasses."
    assert paths == [("desk", "weather"), ("desk", "weather", "forecast")]


async def test_an_agent_that_a_tool_runs_asks_on_the_outer_run() -> None:
    """``await Runner.run(other, …)`` inside a function tool."""
    ran: list[str] = []
    other = nb.Agent(nb.ScriptedModel([call("pay", to="ada"), "Paid."]), name="clerk")

    @other.tool(approval=True)
    def pay(to: str) -> str:
        ran.append(to)
        return f"paid {to}"

    agent = nb.Agent(nb.ScriptedModel([call("settle"), "All settled."]), name="boss")

    @agent.tool
    async def settle() -> str:
        return (await other.run("Pay Ada")).text

    run = live(agent)
    question = await pending_question(run)
    assert (question.path, ran) == (("boss", "settle", "clerk", "pay"), [])
    await run.restart(question)
    assert (await run).text == "All settled."
    assert (run.calls["settle"][0].output, ran) == ("Paid.", ["ada"])


# --- pydantic-ai: deferred tools


async def test_pydantic_ai_approval_required_for_some_inputs_only() -> None:
    """``raise ApprovalRequired(metadata=…)`` unless ``ctx.tool_call_approved``."""
    files = {".env": "old", "notes": "old"}
    agent = nb.Agent(
        nb.ScriptedModel(
            [
                [call("update", path="notes", text="new"), call("update", path=".env", text="")],
                "Ok.",
            ]
        )
    )

    @agent.tool
    def update(path: str, text: str, ctx: nb.ToolContext) -> str:
        if path == ".env" and not ctx.resumed:
            raise nb.Interrupt(nb.Confirm("This file is protected", danger=True))
        files[path] = text
        return f"{path} updated"

    run = live(agent)
    question = await pending_question(run)
    assert (question.input["path"], files) == (".env", {".env": "old", "notes": "new"})
    await run.reject(question, "never touch .env")
    await run
    assert files[".env"] == "old"
    assert [each.error is None for each in run.calls["update"]] == [True, False]


async def test_pydantic_ai_a_call_that_another_system_answers() -> None:
    """``raise CallDeferred(metadata={"task_id": …})``, and ``DeferredToolResults`` by that id."""
    tasks: dict[str, str] = {}
    agent = nb.Agent(nb.ScriptedModel([call("compute", question="6 * 7"), "It is 42."]))

    @agent.tool
    def compute(question: str, ctx: nb.ToolContext) -> int:
        tasks[question] = ctx.external_token
        ctx.interrupt({"task": question}, external=True)

    run = agent.run("go", show=False)
    waiting = asyncio.ensure_future(_result(run))
    await until(lambda: bool(run.interrupts))
    await nb.answer_external(tasks["6 * 7"], 42)
    assert (await waiting).text == "It is 42."
    assert run.calls["compute"][0].output == 42


async def _result(run: nb.Run) -> nb.Result:
    return await run


# --- Genkit: interrupts without a body, without a type, with a parameter called "questions"


async def test_genkit_trivia_questions_accept_any_answer_of_the_player() -> None:
    """A tool ``-> None`` with a parameter named ``questions`` only presents, and waits."""

    class Question(BaseModel):
        question: str
        choices: list[str]

    trivia = nb.Agent(
        nb.ScriptedModel(
            [
                call("present_questions", questions={"question": "2 + 2?", "choices": ["3", "4"]}),
                "Correct!",
            ]
        )
    )

    @trivia.tool
    def present_questions(questions: Question, ctx: nb.ToolContext) -> None:
        """Present a question to the player."""
        ctx.interrupt()

    run = live(trivia)
    question = await pending_question(run)
    await run.respond(question, "4")
    assert (await run).text == "Correct!"
    assert run.calls["present_questions"][0].output == "4"


async def test_genkit_ask_question_is_answered_from_a_list_of_answers() -> None:
    """The body only calls ``ctx.interrupt()``: the answer is a value of the return type."""

    def agent() -> nb.Agent:
        class Questions(BaseModel):
            question: str
            choices: list[str]
            allow_other: bool = False

        ai = nb.Agent(
            nb.ScriptedModel(
                [
                    call(
                        "ask_question", question="How rare?", choices=["a", "b"], allow_other=True
                    ),
                    "Enjoy!",
                ]
            )
        )

        @ai.tool()
        def ask_question(input: Questions, ctx) -> str:  # noqa: A002
            """Use this to ask a clarifying question."""
            ctx.interrupt()

        return ai

    run = agent().run("Plan a BBQ", answers={"ask_question": "b"})
    assert (await run).text == "Enjoy!"
    assert run.calls["ask_question"][0].output == "b"
    person = live(agent())
    question = await pending_question(person)
    assert question.expects == "choice"
    await person.respond(question, "charred")
    await person
    assert person.calls["ask_question"][0].output == "charred"


async def test_genkit_go_a_transfer_is_restarted_with_new_input() -> None:
    """``RestartWith(interrupt, WithNewInput(…))`` and ``OriginalInputAs`` in the body."""
    agent = nb.Agent(nb.ScriptedModel([call("transfer", amount=200), "Done."]))

    class Transfer(BaseModel):
        amount: float

    @agent.tool
    def transfer(input: Transfer, ctx: nb.ToolContext) -> str:  # noqa: A002
        if input.amount > 150 and not ctx.resumed:
            ctx.interrupt({"reason": "insufficient_balance", "balance": 150})
        original = ctx.original_input_as(Transfer)
        return f"sent {input.amount} of {original.amount if original else input.amount}"

    run = live(agent)
    await run.restart(await pending_question(run), new_input={"amount": 150})
    await run
    assert "sent 150.0 of 200.0" in str(run.calls["transfer"][0].output)


# --- Eino: an approval around a tool that also asks


async def test_eino_a_rules_approval_and_then_the_tools_own_interrupt() -> None:
    """A tool needs approval, and its body raises a stateful interrupt: each is asked once, in this order."""
    moved: list[float] = []
    agent = nb.Agent(
        nb.ScriptedModel([call("transfer", amount=9000), "Done."]), policy=nb.review("*")
    )

    @agent.tool
    def transfer(amount: float, ctx: nb.ToolContext) -> str:
        assert ctx.approved
        if amount > 4100 and not ctx.resumed:
            ctx.interrupt(
                nb.Confirm(f"overdraw by {amount - 4100:.0f}?", danger=True), state={"fee": 5}
            )
        moved.append(amount + (ctx.state_as(dict) or {"fee": 0})["fee"])
        return "sent"

    run = live(agent)
    approval = await pending_question(run)
    assert (approval.kind, moved) == ("approval", [])
    await run.restart(approval)
    own = await pending_question(run)
    assert (own.kind, own.metadata["message"], moved) == ("tool", "overdraw by 4900?", [])
    await run.restart(own)
    assert (await run).text == "Done."
    assert moved == [9005]


async def test_eino_review_and_edit_of_a_streaming_tool() -> None:
    """A streaming tool is reviewed and edited, and streams the approved version."""
    agent = nb.Agent(nb.ScriptedModel([call("story", about="war"), "The end."]))

    @agent.tool(approval=True, editable=["about"])
    async def story(about: str) -> Any:
        for word in ("Once", "upon", about):
            yield word

    run = live(agent)
    await run.restart(await pending_question(run), new_input={"about": "peace"})
    await run
    assert "peace" in str(run.calls["story"][0].output)
