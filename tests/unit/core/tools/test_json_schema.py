"""JSON Schemas in place of types: the model gets them unchanged, code gets plain JSON that fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer, Misuse, ModelError, ToolError, UsageError
from nbagent.core.base.events import dump
from nbagent.core.base.secrets import MASK, SecretPlaces
from nbagent.core.tools.json_schema import form_type, with_texts_read
from nbagent.forms.form import Form

call = nb.ScriptedModel.call

TRIP: dict[str, Any] = {
    "type": "object",
    "title": "Trip",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"$ref": "#/$defs/days", "default": 2},
        "pass": {"type": "string", "format": "password"},
    },
    "required": ["city"],
    "$defs": {"days": {"type": "integer", "minimum": 1}},
}
OPEN = {key: value for key, value in TRIP.items() if key != "properties"} | {
    "properties": {key: TRIP["properties"][key] for key in ("city", "days")}
}

UNUSABLE: list[tuple[Any, str, bool]] = [
    # the schema, the error, whether only inputs refuse it
    (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}},
        "'#/\\$defs/no', which is not",
        False,
    ),
    ({"$ref": "https://example.com/x.json"}, "loads nothing", False),
    ({"type": "objekt"}, "'objekt' is not valid", False),
    ({"type": "object", "properties": []}, r"\$.properties", False),
    ({"type": "object", "properties": {"a": {"pattern": "("}}}, "is not a 'regex'", False),
    ({"type": "object", "default": {1, 2}}, "is not JSON", False),
    ({"type": "string"}, "the input must be an object", True),
    (
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
        "the input must be an object",
        True,
    ),
]


class Order(BaseModel):
    """A model, of which somebody gives an instance."""

    dish: str = ""


def keywords(**arguments: Any) -> Any:
    """Plan."""
    return arguments


def whole(args: dict[str, Any]) -> Any:
    """Plan."""
    return args


async def with_context(document: dict[str, Any], ctx: nb.ToolContext) -> Any:
    """Plan."""
    assert ctx.tool_name == "plan"
    return document


@pytest.mark.parametrize(("schema", "said", "as_input"), UNUSABLE)
async def test_c158_a_schema_that_cannot_be_used_is_refused_where_it_is_passed(
    schema, said, as_input
):
    """Every function that takes a schema refuses it."""
    makers: list[Callable[[], Any]] = [
        lambda: nb.tool(schema=schema)(keywords),
        lambda: nb.interrupt_tool("plan", input=schema),
    ]
    if not as_input:
        makers += [
            lambda: nb.interrupt_tool("plan", output=schema),
            lambda: nb.Agent("demo", output_type=schema),
        ]
    for make in makers:
        with pytest.raises(UsageError, match=said):
            make()
    if as_input:
        return

    async def asks(ctx: nb.ToolContext) -> Any:
        return await ctx.ask("What?", reply=schema)

    agent = nb.Agent(nb.ScriptedModel([call("asks"), "done"]), tools=[asks])
    with pytest.raises(Misuse, match=said):
        await agent.run("go")


def test_c158_a_value_that_is_neither_a_type_nor_a_schema_is_refused_too():
    """An instance of a model, an input that is not a model, a function that cannot take a document."""
    with pytest.raises(UsageError, match=r"got an instance of Order. Pass Order"):
        nb.Agent("demo", output_type=Order())
    with pytest.raises(ToolError, match="input= must be a pydantic model or a JSON Schema"):
        nb.interrupt_tool("plan", input=int)  # type: ignore[call-overload]

    def several(city: str, days: int) -> None:
        """Plan."""

    for fn in (several, lambda: None):
        with pytest.raises(ToolError, match=r"must take \*\*arguments, or one parameter"):
            nb.tool(schema=TRIP, name="plan")(fn)


@pytest.mark.parametrize("fn", [keywords, whole, with_context])
async def test_c158_a_tool_with_a_schema_gets_plain_json_that_fits(play, fn):
    """The model gets the schema unchanged, and an error for arguments that do not fit."""

    def define(agent: nb.Agent) -> None:
        agent.tool(name="plan", schema=OPEN)(fn)

    steps = [
        [call("plan", city="Rome", days=3, more=[1.5]), call("plan", city="R"), call("plan")],
        "done",
    ]
    s = await play(steps, define)
    first, short, none = s.results
    assert first == {"city": "Rome", "days": 3, "more": [1.5]}
    assert "The arguments do not match the schema of plan: city: " in short
    assert "city: This field is required." in none
    assert s.text == "done"


def test_lists_in_strings_and_secrets_are_found_as_far_as_a_wide_union_allows():
    """Thousands of shapes for each of thousands of parts would take minutes; the rest is not read, and is secret."""
    shapes = [{"type": "array"}, *({"type": "integer", "minimum": n} for n in range(4_000))]
    schema = {"type": "object", "properties": {"a": {"items": {"anyOf": shapes}}}, "anyOf": shapes}
    read = with_texts_read(schema, {"a": ["[1]"] * 1_000, **dict.fromkeys(map(str, range(9_000)))})
    assert (read["a"][0], read["a"][-1]) == ([1], "[1]")
    shapes = [{"properties": {"t": {"const": n}, "s": {"writeOnly": True}}} for n in range(4_000)]
    places = SecretPlaces({"items": {"anyOf": shapes}})
    shown = places.masked([{"t": n % 4_000, "s": "x", "p": None} for n in range(9_000)])
    assert (shown[0], shown[-1]) == ({"t": 0, "s": MASK, "p": None}, MASK)


async def test_c158_the_model_gets_the_schema_unchanged_and_a_copy_is_stored():
    """Later changes of the dict have no effect."""
    schema = json.loads(json.dumps(OPEN))
    made = nb.tool(schema=schema, name="plan")(keywords)
    schema["properties"].clear()
    model = nb.ScriptedModel(['{"city": "Rome"}'])
    agent = nb.Agent(model, tools=[made], output_type=OPEN)
    assert (await agent.run("go")).output == {"city": "Rome"}
    assert model.requests[0].tools[0].input_schema == model.requests[0].output_schema == OPEN


async def test_c158_an_answer_with_a_schema_is_validated_by_it(play):
    """The answer to a tool without a body, and its input."""

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("plan", input=OPEN, output=OPEN))

    s = await play([[call("plan", city="Rome"), call("plan", city=5)], "done"], define)
    assert [dict(i.input) for i in s.interrupts] == [{"city": "Rome"}]
    with pytest.raises(InvalidAnswer, match="days: "):
        await s.answer(respond={0: {"city": "Rome", "days": 0}})
    await s.answer(respond={0: {"city": "Rome", "days": 1}})
    assert s.results[0] == {"city": "Rome", "days": 1}
    assert "do not match the schema of plan: city" in s.results[1]


async def test_c158_a_reply_with_a_schema_waits_at_its_line(play):
    """Also if it is answered elsewhere."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def asks(ctx: nb.ToolContext) -> Any:
            answer = await ctx.ask("What?", reply=OPEN)
            return [answer["city"], type(answer).__name__]

    s = await play([call("asks"), "done"], define)
    assert s.interrupts[0].reply_schema == OPEN
    with pytest.raises(InvalidAnswer):
        await s.answer(respond={0: {"days": 2}})
    await s.answer(respond={0: {"city": "Rome"}})
    assert s.results == [["Rome", "dict"]]


async def test_c158_a_model_answer_that_does_not_fit_the_schema_fails_the_run():
    """The same as for a type."""
    for text in ('{"days": 3}', "no json"):
        agent = nb.Agent(nb.ScriptedModel([text]), output_type=OPEN, output_retries=0)
        with pytest.raises(ModelError, match="does not match output_type"):
            await agent.run("go")


async def test_c158_rules_and_middleware_see_such_an_input_by_name():
    """As attributes, as for any tool; an input that middleware changes must fit as well."""
    seen: list[Any] = []

    async def around(call_: nb.ToolCall, next_: Any) -> Any:
        call_.input = call_.input.model_copy(update={"days": call_.input.days + 1})
        return await next_(call_)

    agent = nb.Agent(
        nb.ScriptedModel([call("plan", city="Rome", days=2), "done"]),
        policy=[nb.review("plan", when=lambda a: seen.append(a.days) or a.days == 3)],
        middleware=[around],
    )
    agent.tool(name="plan", schema=OPEN)(keywords)
    run = await agent.run("go").settled()
    assert (seen, run.interrupts[0].input) == ([3], {"city": "Rome", "days": 3})
    with pytest.raises(InvalidAnswer, match="days"):
        run.restart(run.interrupts[0], new_input={"city": "Rome", "days": 0})
    run.restart(run.interrupts[0])
    await run
    assert run.calls["plan"][0].output == {"city": "Rome", "days": 3}


@pytest.mark.parametrize("secret", ["hunter22", 'it\'s "back\\slashed"\n'])
async def test_p13_only_the_body_gets_a_secret_of_a_schema(secret):
    """No event, error, repr or rule has the secret."""
    given: list[Any] = []
    reprs: list[str] = []

    def log_in(**arguments: Any) -> str:
        given.append(arguments)
        return "in"

    agent = nb.Agent(
        nb.ScriptedModel([call("log_in", city="Rome"), "done"]),
        policy=[nb.review("log_in", when=lambda a: reprs.append(repr(a)) is None)],
    )
    agent.tool(schema=TRIP, editable=True)(log_in)
    run = await agent.run("go").settled()
    (asked,) = run.interrupts
    wrong = {"city": "R", "pass": secret}
    with pytest.raises(InvalidAnswer) as raised:
        run.restart(asked, new_input=wrong)
    run.restart(asked, new_input={"city": "Rome", "pass": secret})
    await run
    assert given == [{"city": "Rome", "pass": secret}]
    told = "".join([*map(dump, run.journal), str(raised.value), str(raised.value.errors), *reprs])
    assert secret not in told
    assert json.dumps(secret)[1:-1] not in told
    assert repr(secret)[1:-1] not in told
    with pytest.raises(ToolError, match="would contain a secret"):
        nb.interrupt_tool("plan", output=TRIP)


def test_a_form_for_a_schema_is_built_from_the_schema_itself():
    """With its defaults and its own validator."""
    made = nb.interrupt_tool("plan", input=OPEN, output=OPEN)
    for type_ in (made.input_type, made.output_adapter):
        form = Form(form_type(type_))
        assert form_type(type_) == OPEN
        assert [field.label for field in form.fields.fields] == ["City", "Days"]  # type: ignore[attr-defined]
