"""Errors that say what to do: unknown keywords, classes in place of instances, ``input()``."""

from __future__ import annotations

import getpass
import inspect
import io
import sys
import types
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import Misuse, ToolError, UsageError

call = nb.ScriptedModel.call
AGENT = nb.Agent("demo")

MISTAKES: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (
        nb.Agent,
        {"system_prompt": "x"},
        r"nb.Agent\(\) .* 'system_prompt'\. Use instructions=",
    ),
    (nb.Agent, {"prompt": "x"}, "Use instructions="),
    (nb.Agent, {"functions": []}, "Use tools="),
    (nb.Agent, {"tool": []}, "Did you mean 'tools'"),
    (nb.Agent, {"retries": 3}, r"middleware=\[nb.Retry\(times=…\)\]"),
    (nb.Agent, {"timeout": 3}, r"middleware=\[nb.Timeout\(seconds\)\]"),
    (nb.Agent, {"temperature": 0}, r"nb.OpenAIModel\(name, …\)"),
    (nb.Agent, {"max_tokens": 9}, "extra={'max_tokens': …}"),
    (nb.OpenAIModel, {"max_tokens": 9}, "extra={'max_tokens': …}"),
    (nb.OpenAIModel, {"reasoning_effort": "low"}, "extra={'reasoning_effort': …}"),
    (nb.OpenAIModel, {"temprature": 0}, "Did you mean 'temperature'"),
    (nb.Agent, {"human_in_the_loop": True}, "Use policy="),
    (nb.Agent, {"checkpointer": None}, "Use store="),
    (nb.Agent, {"recursion_limit": 9}, "Use max_turns="),
    (nb.Agent, {"result_type": int}, "Use output_type="),
    (nb.Agent, {"stream": True}, r"run.events\(\)"),
    (nb.Agent, {"answers": []}, r"Pass it to agent.run\(answers=…\)"),
    (nb.Agent, {"zzz": 1}, ". Available: model, name, instructions"),
    (AGENT.run, {"answer": 1}, r"agent.run\(\) .* Did you mean 'answers'"),
    (AGENT.run, {"max_iterations": 1}, r"Pass it to nb.Agent\(max_turns=…\)"),
    (AGENT.run, {"tools": []}, r"Pass it to nb.Agent\(tools=…\)"),
    (AGENT.run, {"thread_id": "a"}, "Use after=run to continue"),
    (AGENT.run_sync, {"answer": 1}, "Did you mean 'answers'"),
    (AGENT.generate, {"history": []}, "Use messages="),
    (AGENT.tool, {"needs_approval": True}, "Use approval="),
    (nb.tool, {"interrupt_on": True}, "Use approval="),
    (nb.tool, {"retry": 2}, "nb.Retry"),
    (nb.interrupt_tool, {"response_format": int}, "Use output="),
    (nb.Interrupt, {"timeout": 3}, "Use expires_in="),
    (nb.open_run, {"checkpointer": None}, "Use store="),
    (nb.answer_external, {"values": 1}, "Did you mean 'value'"),
    (nb.review, {"condition": len}, "Use when="),
    (nb.deny, {"message": "no"}, "Use reason="),
    (nb.Confirm, {"mesage": "Sure?"}, r"Confirm\(\) .* Did you mean 'message'"),
    (nb.Confirm, {"message": "Sure?", "dangerous": True}, "Did you mean 'danger'"),
    (nb.Choose, {"message": "Which?", "options": ["a"]}, "Available: message, choices"),
    (nb.allow, {"wen": len}, "Did you mean 'when'"),
    (nb.Budget, {"max_tokens": 9}, "Use tokens="),
    (nb.Budget, {"dollars": 9}, "Available: tokens, cost, seconds"),
    (nb.Agent, {}, r"nb.Agent\(\) needs 'model', as in nb.Agent\(model\)$"),
    (
        nb.map,
        {"rows": [1]},
        r"needs 'agent' and 'prompt' and 'id', as in .*agent, rows, prompt=…, id=…\)",
    ),
    (nb.interrupt_tool, {}, r"needs 'name', as in nb.interrupt_tool\(name"),
]


@pytest.mark.parametrize(("made", "given", "said"), MISTAKES)
def test_c155_an_unknown_keyword_is_answered_with_the_right_one(made, given, said):
    """The error has the intended keyword, for typos and words of other libraries."""
    with pytest.raises(TypeError, match=said) as raised:
        made(**given)
    error = raised.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


def test_c155_an_unknown_keyword_in_a_tool_is_answered_too():
    """``ctx.ask`` and ``ctx.interrupt`` are called in a body."""
    for name, given, said in [
        ("ask", {"output_type": int}, "Use reply="),
        ("ask_sync", {"default": 1}, "Use value="),
        ("ask", {"options": []}, "nb.Choose"),
        ("interrupt", {"deadline": 3}, "Use expires_in="),
    ]:
        with pytest.raises(TypeError, match=said):
            getattr(nb.ToolContext, name)(None, "What?", **given)


def test_a_type_error_raised_inside_a_call_is_unchanged():
    class Broken:
        """A list that raises."""

        def __iter__(self) -> Any:
            raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        nb.Agent("demo", tools=Broken())  # type: ignore[arg-type]


def test_signatures_are_visible_to_help_and_editors():
    assert list(inspect.signature(nb.Agent).parameters)[:3] == ["model", "name", "instructions"]
    assert str(inspect.signature(nb.allow)).startswith("(pattern: str, *, when")


class Note(BaseModel):
    """Metadata of one's own."""

    text: str = ""


async def test_a_class_in_place_of_an_instance_is_reported():
    """As a model, a tool, or the metadata of a question."""
    with pytest.raises(UsageError, match=r"Use ScriptedModel\(…\)"):
        nb.Agent(nb.ScriptedModel)  # type: ignore[arg-type]
    with pytest.raises(ToolError, match=r"as_tool\(\)"):
        nb.Agent("demo", tools=[AGENT])  # type: ignore[list-item]

    async def note(ctx: nb.ToolContext) -> str:
        return str(await ctx.ask(Note))

    agent = nb.Agent(nb.ScriptedModel([call("note"), "done"]), tools=[note])
    with pytest.raises(Misuse, match=r"an instance, Note\(…\), or reply=Note"):
        await agent.run("go")


def kernel_getpass(_prompt: str) -> str:
    """As in a kernel whose page takes no input."""
    raise RuntimeError("getpass was called, but this frontend does not support input requests.")


@pytest.mark.parametrize(
    ("read", "hint"),
    [
        (input, "a tool cannot use input(). Use ctx.ask_sync(…)"),
        (getpass.fallback_getpass, "Use ctx.ask_sync(…, reply=pydantic.SecretStr)"),
        (kernel_getpass, "Use ctx.ask_sync(…, reply=pydantic.SecretStr)"),
    ],
)
@pytest.mark.filterwarnings("ignore:Can not control echo")
async def test_input_without_a_terminal_suggests_ctx_ask(monkeypatch, read, hint):
    """The model and the person both get the error."""

    def who() -> str:
        return read("Who? ")

    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    run = nb.Agent(nb.ScriptedModel([call("who"), "done"]), tools=[who]).run("go")
    await run
    assert hint in run.calls["who"][0].output


async def test_the_end_of_a_pipe_is_not_taken_for_the_end_of_input():
    """Its error has no text either."""

    def pipe() -> str:
        raise EOFError

    run = nb.Agent(nb.ScriptedModel([call("pipe"), "done"]), tools=[pipe]).run("go")
    await run
    assert "cannot use" not in run.calls["pipe"][0].output


def test_a_client_or_an_empty_string_as_the_model_is_an_error_that_says_what_to_pass():
    """The error comes before the first request."""
    client = types.SimpleNamespace(chat=None, base_url="https://x.example")
    with pytest.raises(nb.errors.UsageError, match=r"nb\.OpenAIModel\(name, client=…\)"):
        nb.Agent(client)  # type: ignore[arg-type]  # as a person may write it
    with pytest.raises(nb.errors.UsageError, match="name is empty"):
        nb.Agent("")


POSITIONS: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (
        nb.Agent,
        ("demo", "Be nice."),
        r"takes model by position, .* as in name=…: name, instructions",
    ),
    (AGENT.run, ("hi", "there"), r"agent.run\(\) takes prompt by position, .* messages, "),
    (nb.OpenAIModel, ("m", "http://x/v1"), "takes name by position, .* as in base_url=…"),
]


@pytest.mark.parametrize(("made", "given", "said"), POSITIONS)
def test_a_positional_argument_that_needs_a_name_is_reported(made, given, said):
    """Python's own message counts arguments, and does not list their names."""
    with pytest.raises(TypeError, match=said):
        made(*given)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "api.example.com", "/v1"])
def test_an_address_without_a_scheme_is_reported_where_the_model_is_created(url):
    """Not at the first request, by an error of another library."""
    with pytest.raises(nb.errors.ModelConfigError, match=r"base_url=.*'http://'"):
        nb.OpenAIModel("m", base_url=url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timeout": "5"}, "timeout must be a number of seconds above 0, got '5'"),
        ({"timeout": 0}, "timeout must be .* got 0"),
        ({"max_retries": -1}, "max_retries must be an integer of at least 0, got -1"),
        ({"max_retries": "2"}, "max_retries must be .* got '2'"),
    ],
)
def test_a_timeout_or_a_number_of_retries_is_checked_where_the_model_is_created(given, said):
    """Not at the first request, as an error of the server."""
    with pytest.raises(nb.errors.UsageError, match=said):
        nb.OpenAIModel("m", **given)


def test_a_dataframe_as_a_prompt_or_a_tool_is_an_error_that_says_how_to_pass_it():
    """As a tool, and as the prompt; the error does not print the table."""
    sales = pd.DataFrame({"region": ["North"] * 9})
    agent = nb.Agent(nb.ScriptedModel([]))
    for given in (lambda: nb.Agent("demo", tools=[sales]), lambda: agent.run(sales, show=False)):
        with pytest.raises(UsageError, match=r"[aA] DataFrame.*nb.notebook_tools") as caught:
            given()
        assert "North" not in str(caught.value)


async def test_a_missing_question_or_call_is_an_error_that_lists_what_is_there():
    """``run.interrupts[0]`` before the run has settled and after it has ended; ``run.calls`` with a wrong name."""
    agent = nb.Agent(nb.ScriptedModel([call("send", to="ada"), "Sent."]))

    @agent.tool(approval=True)
    def send(to: str) -> str:
        """Send."""
        return f"sent to {to}"

    run = agent.run("go", attended=True, show=False)
    with pytest.raises(IndexError, match=r"is running. First use await run.settled\(\)"):
        run.interrupts[0]
    with pytest.raises(KeyError, match=r"no call of 'send'. Its calls: none"):
        run.calls["send"]
    await run.settled()
    with pytest.raises(IndexError, match=r"No other question is waiting .* is interrupted$"):
        run.interrupts[1]
    run.approve(run.interrupts[-1])
    await run
    with pytest.raises(IndexError, match=r"No question is waiting in this run, .* completed$"):
        run.interrupts[0]
    with pytest.raises(KeyError, match="Did you mean 'send'"):
        run.calls["sent"]
    assert (run.interrupts, run.calls.get("sent"), len(run.calls["send"])) == ([], None, 1)


async def test_an_object_in_the_wrong_place_is_an_error_that_says_what_to_write():
    """An unknown model's name, a function as the model, a chat that is awaited, a run that is added to a text."""
    for name, told in (
        ("DemoModel", r'Use nb\.Agent\("demo"\)$'),
        ("AnthropicModel", r'Use nb\.Agent\("anthropic:<model>"\)$'),
        ("OpenAI", "Did you mean 'OpenAIModel'"),
    ):
        with pytest.raises(AttributeError, match=told):
            getattr(nb, name)
    with pytest.raises(UsageError, match=r"got <function.* write nb\.ScriptedModel\(function\)"):
        nb.Agent(lambda _: "Hi")
    agent = nb.Agent(nb.ScriptedModel(["Hi"]))
    with pytest.raises(TypeError, match=r"chat cannot be awaited. Use `run = chat\.send\(…\)`"):
        await agent.chat()
    run = agent.run("Hello")
    for add in (lambda: run + "!", lambda: "I say: " + run):
        with pytest.raises(TypeError, match=r"A run is not text.*result = await run"):
            add()
    result = await run
    assert "I say: " + result.text == "I say: Hi"
    with pytest.raises(
        AttributeError, match=r"A result has no 'to_html', but its run does. .*run\.to_html"
    ):
        result.to_html()
    with pytest.raises(AttributeError, match="A run has no 'text', but its result does"):
        run.text  # noqa: B018
