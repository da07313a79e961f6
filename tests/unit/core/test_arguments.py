"""Wrong arguments and names: the error comes at once, and says what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import Misuse, ToolError, UsageError
from nbagent.core.base.events import dump

call = nb.ScriptedModel.call


def danger(x: int = 0) -> str:
    """Do it."""
    return f"done {x}"


def agent_with(**options: Any) -> nb.Agent:
    """An agent with a tool ``danger``."""
    script = nb.ScriptedModel([call("danger"), "done"])
    return nb.Agent(**{"model": script, "tools": [danger]} | options)


WRONG = [
    ({"policy": "danger"}, "policy must be a list, such as"),
    ({"policy": 5}, "policy must be a list"),
    ({"policy": ["danger"]}, "A policy rule must come from nb.allow, nb.review or nb.deny"),
    ({"middleware": [nb.Retry]}, r"the class Retry. Use Retry\(…\)"),
    ({"middleware": nb.Retry}, "middleware must be a list"),
    ({"middleware": nb.Retry()}, "middleware must be a list"),
    ({"middleware": [5]}, "A middleware must be an async callable"),
    ({"budget": 5}, r"budget must be nb.Budget\(tokens"),
    ({"tools": print}, "tools must be a list"),
    ({"tools": danger}, "tools must be a list"),
    ({"tools": "danger"}, "tools must be a list"),
    ({"tools": [42]}, "42 is not a tool"),
    ({"tools": [[danger]]}, r"is not a tool.* Write \* before a list of tools"),
    (
        {"instructions": 5},
        r"instructions must be a string, a function of the run \(nb.RunView\), or None, got 5",
    ),
    ({"name": None}, "name must be a string, got None"),
    ({"max_turns": 0}, "max_turns must be an integer"),
    ({"max_turns": "3"}, "max_turns must be an integer .* got '3'"),
    ({"max_turns": True}, "max_turns must be an integer"),
    ({"max_calls": 0}, "max_calls must be an integer"),
    ({"max_questions": "3"}, "max_questions must be an integer .* got '3'"),
    ({"store": 5}, "store must be a path, a database URL or a store"),
    ({"store": Path("/")}, "'/' is a folder. Pass the path of a file"),
    ({"store": nb.MemoryStore}, "a class. Pass an instance"),
    ({"model": None}, "A model must be a name or an object with a stream method"),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_an_agent_refuses_a_wrong_argument(options, said):
    """The error names the argument, what was given and what is expected."""
    with pytest.raises(UsageError, match=said):
        agent_with(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"store": 5}, "store must be a path, a database URL or a store"),
        ({"attended": "yes"}, "attended must be True, False or None"),
        ({"pending": "rejct"}, "pending must be 'wait', 'raise', 'reject' or 'queue', got 'rejct'"),
    ],
)
async def test_a_run_refuses_a_wrong_argument(options, said):
    """Nothing starts."""
    agent = agent_with()
    with pytest.raises(UsageError, match=said):
        agent.run("go", **options)
    assert agent.model.requests == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pending": "rejct"}, "pending must be 'raise'"),
        ({"max_turns": 0}, "max_turns must be an integer"),
        ({"tools": "danger"}, "tools must be a list"),
        ({"tools": ["dangr"]}, "Did you mean 'danger'"),
    ],
)
async def test_generate_refuses_a_wrong_argument(options, said):
    """No request is sent."""
    agent = agent_with()
    with pytest.raises(UsageError, match=said):
        await agent.generate("go", **options)
    assert agent.model.requests == []


@pytest.mark.parametrize("rule", [nb.deny("dangr"), nb.review("Danger"), nb.allow("dange")])
@pytest.mark.parametrize("live", [True, False])
async def test_a_rule_that_names_no_tool_is_refused_when_a_run_starts(rule, live):
    """A typo in a deny rule would let the call pass."""
    agent = agent_with(policy=[rule])
    with pytest.raises(UsageError, match=r"matches no tool of 'agent'. Did you mean 'danger'\?"):
        await (agent.run("go") if live else agent.generate("go"))
    assert agent.model.requests == []


@pytest.mark.parametrize("rule", [nb.review("fs__*"), nb.allow("DANGE?")])
@pytest.mark.parametrize("live", [True, False])
async def test_a_rule_whose_wildcard_matches_no_tool_is_refused_too(rule, live):
    """It would let the call pass as well; ``*`` is always valid."""
    agent = agent_with(policy=[rule, nb.review("*")])
    with pytest.raises(UsageError, match=r"matches no tool of 'agent'. Its tools: danger"):
        await (agent.run("go") if live else agent.generate("go"))
    assert agent.model.requests == []


async def test_a_wildcard_rule_can_match_tools_that_a_body_calls():
    """Such calls are unknown beforehand: a deny rule, or a tool with a context, makes the wildcard valid."""
    denies = agent_with(policy=[nb.deny("wip*"), nb.review("*")])
    assert (await denies.generate("go")).interrupts
    agent = agent_with(policy=[nb.review("wip*")])

    @agent.tool
    async def tidy(ctx: nb.ToolContext) -> None:
        await ctx.step("x", lambda: 1)

    assert (await agent.generate("go")).finish_reason == "stop"


async def test_a_wildcard_rule_for_an_inner_agent_says_where_it_belongs():
    """Deny rules reach into inner agents; review and allow rules do not."""
    inner = nb.Agent(nb.ScriptedModel([]), name="inner", tools=[danger])
    outer = nb.Agent(nb.ScriptedModel(["x"]), tools=[inner.as_tool()], policy=[nb.review("dan*")])
    with pytest.raises(
        UsageError, match=r"a tool of its inner agent 'inner'. Move the rule to 'inner'"
    ):
        outer.run("go")
    outer.policy[:] = [nb.deny("dan*"), nb.deny("inner/d*"), nb.deny("*/dan*")]
    assert (await outer.run("go")).text == "x"


async def test_wildcard_rules_and_rules_for_registered_tools_are_accepted():
    """Also if the tool was added later, or is left out of this step."""
    policy = [
        nb.deny("d*e?", when=lambda _: False),
        nb.review("lat?r"),
        nb.allow("danger"),
        nb.deny("*"),
    ]
    agent = agent_with(policy=policy)
    agent.tool(name="later")(lambda: "x")
    assert (await agent.generate("go", tools=[danger])).finish_reason == "stop"


@pytest.mark.parametrize("rule", [nb.review("danger"), nb.allow("danger")], ids=str)
async def test_review_and_allow_rules_do_not_reach_into_an_inner_agent(rule):
    """The error says where the rule belongs; an inner typo is found before anything runs."""
    inner = nb.Agent(nb.ScriptedModel(["x"]), name="inner", tools=[danger])
    outer = nb.Agent(nb.ScriptedModel(["x"]), tools=[inner.as_tool()], policy=rule)
    with pytest.raises(
        UsageError, match=r"a tool of its inner agent 'inner'. Move the rule to 'inner'"
    ):
        outer.run("go")
    inner.policy.append(nb.deny("dangr"))
    outer.policy.clear()
    with pytest.raises(UsageError, match=r"matches no tool of 'inner'. Did you mean 'danger'"):
        outer.run("go")


# --- metadata and answers with their first fields by position


class Transfer(nb.Confirm):
    """Metadata of a person's own."""

    message: str = "Send?"
    amount: int


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (nb.Confirm("Sure?", danger=True), nb.Confirm(message="Sure?", danger=True)),
        (nb.Ask("How many?"), nb.Ask(message="How many?")),
        (nb.Choose("Which?", ["a"]), nb.Choose(message="Which?", choices=["a"])),
        (nb.Choose("Which?", choices=["a"]), nb.Choose(message="Which?", choices=["a"])),
        (nb.Edit("Look"), nb.Edit(message="Look")),
        (nb.Option("a", "Ay"), nb.Option(value="a", label="Ay")),
        (nb.Reject("no"), nb.Reject(reason="no")),
        (nb.Respond("x"), nb.Respond(output="x")),
        (nb.Restart({"x": 1}), nb.Restart(input={"x": 1})),
        (Transfer("Sure?", amount=1), Transfer(message="Sure?", amount=1)),
        (Transfer(amount=1), Transfer(message="Send?", amount=1)),
    ],
    ids=str,
)
def test_the_first_fields_can_be_positional(made, same):
    """Also in a subclass with own fields; the JSON reads back equal."""
    assert made == same
    assert type(made).model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: nb.Confirm("Sure?", True),
            "Confirm takes message by position and everything else by name",
        ),
        (lambda: nb.Confirm("Sure?", message="?"), "'message' twice: by position and by name"),
        (lambda: nb.Choose("Which?", ["a"], True), "takes message, choices by position"),
    ],
    ids=["too many", "twice", "three"],
)
def test_a_field_that_must_be_named_says_so(make, said):
    """A bare True is not readable."""
    with pytest.raises(TypeError, match=said):
        make()


# --- nothing to choose from


class Table:
    """A stand-in for a DataFrame."""

    columns = ("city", "price")


class Empty:
    """A column without rows."""

    def tolist(self) -> list[str]:
        """No values."""
        return []


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ([], "has no choices"),
        (list, "has no choices"),
        (Empty(), "has no choices"),
        (Table(), r"choices must be one column, such as df\['city'\], got a whole table"),
    ],
    ids=["list", "function", "column", "table"],
)
async def test_an_empty_list_of_choices_fails_the_run_in_its_tool(choices, said, asks):
    """The form could not be answered, and the model could not correct it."""

    async def pick(ctx: nb.ToolContext) -> str:
        question = nb.Choose("Which?", choices)
        if not asks:
            ctx.interrupt(question)
        try:
            return str(await ctx.ask(question))
        except Exception:
            return "nothing"

    agent = agent_with(model=nb.ScriptedModel([call("pick"), "done"]), tools=[pick])
    with pytest.raises(Misuse, match=said):
        await agent.run("go")
    assert len(agent.model.requests) == 1


async def test_an_empty_list_of_choices_with_allow_other_is_asked():
    """With ``allow_other`` the person writes the answer."""

    async def pick(ctx: nb.ToolContext) -> str:
        return str(await ctx.ask(nb.Choose("Which?", [], allow_other=True)))

    agent = agent_with(model=nb.ScriptedModel([call("pick"), "done"]), tools=[pick])
    run = agent.run("go", answers=["mine"])
    await run
    assert run.calls["pick"][0].output == "mine"


# --- invalid tools and scripts


class Shop:
    """A class with methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    def price(self, item: str) -> str:
        """Tell a price."""
        return f"{item} at {self.name}"

    @classmethod
    def kinds(cls, item: str) -> str:
        """Tell the kind."""
        return f"{item} of {cls.__name__}"


@pytest.mark.parametrize("method", ["price", "kinds"])
async def test_a_method_of_an_object_can_be_a_tool(method):
    """The object is not among the inputs."""
    script = nb.ScriptedModel([call(method, item="tea"), "done"])
    agent = nb.Agent(script, tools=[getattr(Shop("Rue"), method)])
    assert list(agent.tools[method].input_schema["properties"]) == ["item"]
    run = agent.run("go")
    await run
    assert run.calls[method][0].output == {"price": "tea at Rue", "kinds": "tea of Shop"}[method]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nb.Agent("demo", tools=[Shop.price]), "is a method without its object"),
        (lambda: nb.tool(Shop.price), r"agent.add\(an_object.price\)"),
        (lambda: nb.Agent("demo", tools=[lambda x: x]), r"nb.tool\(name='add'\)"),
        (lambda: nb.tool(name="two words")(danger), "A tool name can have letters"),
        (lambda: nb.interrupt_tool("what?"), "A tool name can have letters"),
    ],
    ids=["unbound", "unbound tool", "lambda", "space", "question"],
)
def test_a_tool_that_no_model_could_call_is_refused(make, said):
    """The error comes at once and says what to do."""
    with pytest.raises(ToolError, match=said):
        make()


@pytest.mark.parametrize("steps", ["hello", None, 5])
def test_a_script_must_be_a_list(steps):
    """A string would be one step for each letter."""
    with pytest.raises(UsageError, match=r"ScriptedModel\(\["):
        nb.ScriptedModel(steps)


# --- a tool that raises


def broken(n: int = 0) -> int:
    """Divide."""
    return 5 // n


@pytest.mark.parametrize("fails", [True, False])
async def test_the_traceback_of_a_tool_is_stored_for_the_person(fails, caplog):
    """The call and the log have it; the model and the journal have one line."""
    caplog.set_level("INFO", "nbagent")
    script = nb.ScriptedModel([call("broken", n=int(not fails)), "done"])
    run = nb.Agent(script, tools=[broken]).run("go")
    await run
    (one,) = run.calls["broken"]
    with pytest.raises(ZeroDivisionError) as raised:  # the message depends on the Python version
        broken()
    line = f"The tool broken failed: ZeroDivisionError: {raised.value}"
    assert (one.failed, one.error, one.value) == ((True, line, line) if fails else (False, None, 5))
    if not fails:
        assert (one.traceback, caplog.text) == (None, "")
        return
    assert "return 5 // n" in one.traceback
    assert "nbagent/core" not in one.traceback
    assert "return 5 // n" in caplog.text
    told = "".join(map(dump, run.journal))
    assert ("return 5" in told, "Traceback" in told, line in told) == (False, False, True)


async def test_a_rejection_is_not_a_failure_with_a_traceback(caplog):
    """The call counts as failed; nothing is logged."""

    @nb.tool
    async def pay(ctx: nb.ToolContext) -> str:
        return str(await ctx.ask("Pay?"))

    script = nb.ScriptedModel([call("pay"), "done"])
    run = nb.Agent(script, tools=[pay]).run("go", answers=[nb.Reject("no")])
    await run
    (one,) = run.calls["pay"]
    assert (one.failed, one.traceback, caplog.text) == (True, None, "")


async def test_a_traceback_is_bounded():
    """However deep the stack and long the message."""

    def deep(n: int = 0) -> None:
        if n == 40:
            raise ValueError("x" * 50_000)
        deep(n + 1)

    script = nb.ScriptedModel([call("deep"), "done"])
    run = nb.Agent(script, tools=[deep]).run("go")
    await run
    assert len(run.calls["deep"][0].traceback) < 4_100


def test_an_agent_with_a_human_readable_name_can_be_a_tool():
    """Its default name as a tool is valid for models."""
    assert nb.Agent("demo", name="Travel planner").as_tool().name == "Travel_planner"


async def test_c169_searching_a_run_creates_no_file_and_says_where_it_searched(tmp_path):
    """A mistyped path creates no file or folder; an existing file only lacks the run."""
    path = tmp_path / "typo" / "rnus.db"
    for said in (r"rnus.db'\) has no run 'a': the file does not exist", r"has no run 'a'$"):
        with nb.SQLiteStore(path) as store:
            with pytest.raises(UsageError, match=said):
                await nb.open_run("a", agent=agent_with(), store=store)
            with pytest.raises(nb.errors.NotPending):
                nb.answer_external("t", 1, agent=agent_with(), store=store)
            if "does not exist" in said:
                assert (store.run_ids(), store.beats("p"), list(tmp_path.iterdir())) == ([], 0, [])
                store.append("b", [], 0)
                assert path.exists()


# --- the repr and result of a run


async def test_the_repr_of_a_run_shows_its_question_and_its_failure():
    """The repr is bounded."""
    asking = nb.interrupt_tool("pay", metadata=nb.Ask(f"Send this?{' x' * 500}"))
    agent = agent_with(
        model=nb.ScriptedModel([[call("pay"), call("pay")], ValueError("too\nbad")]), tools=[asking]
    )
    run = await agent.run("go").settled()
    assert repr(run).startswith("<Run of agent on 'go': interrupted, pay asks \"Send this? x x")
    assert repr(run).endswith('…" and 1 more>')
    assert len(repr(run)) < 200
    for interrupt in run.interrupts:
        run.respond(interrupt, "yes")
    await run.settled()
    assert repr(run) == "<Run of agent on 'go': failed, ModelError: ValueError: too bad>"


async def test_the_error_quotes_an_answer_that_does_not_fit():
    """The quote is bounded; the answer best shows the cause."""
    agent = nb.Agent(nb.ScriptedModel(["Sure! " + "x" * 900]), output_type=int, output_retries=0)
    with pytest.raises(nb.errors.ModelError, match=r"The answer was 'Sure! x+'…$") as raised:
        await agent.run("go")
    assert len(str(raised.value)) < 400
