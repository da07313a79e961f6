"""The public names are sorted, exist and are cheap to import."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
import typing
from collections import abc
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import nbagent as nb
from nbagent.core.base import errors, interrupts, metadata
from nbagent.core.base.keywords import SPELLED
from nbagent.core.journal import default
from nbagent.core.run import generate, scripted_answers
from nbagent.core.tools import attachments, instructions, kept_history, policy

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
HEAVY = [
    *("apprise", "opentelemetry"),
    *("duckdb", "genai_prices", "narwhals", "PIL", "pyarrow"),
    "openai",
    "aiohttp",
    "IPython",
    "ipykernel",
    "anywidget",
    "ipywidgets",
    "httpx2",
    "httpx",
    "litellm",
    "numpy",
    "pandas",
    "mcp",
    "mcp_types",
]


def test_the_names_are_sorted_and_documented_by_dir():
    """The list has no duplicates and is short."""
    assert sorted(set(nb.__all__)) == nb.__all__
    assert dir(nb) == nb.__all__
    assert len(nb.__all__) <= 82


SHOWN = {
    nb.Confirm: "(message: str, /, *, danger: bool = False)",
    nb.Ask: "(message: str, /)",
    nb.Edit: "(message: str, /, *, fields: list[str] | None = None)",
}


@pytest.mark.parametrize("name", nb.__all__)
def test_the_inspector_of_jupyter_shows_how_a_name_is_called(name):
    """Shift+Tab shows arguments with names and types, and a docstring."""
    found = getattr(nb, name)
    if not callable(found) or name in ("Model", "Store"):  # protocols, which nobody calls
        return
    shown = InteractiveShell.instance().inspector.info(found)
    text = f"{shown['definition']} {shown['init_definition']}"
    for word in ("*given", "**fields", "*args", "**kwargs", "**data"):
        assert word not in text, text
    assert shown["docstring"]
    assert "docs.pydantic" not in shown["docstring"]
    if found in SHOWN:
        assert SHOWN[found] in text


async def looked_up(name):
    """The object that a user looks up by this name."""
    agent = nb.Agent(nb.ScriptedModel([]))
    first, _, rest = name.partition(".")
    return getattr(agent if first == "agent" else nb, rest)


EXAMPLES = ["Agent", "Ask", "Choose", "Confirm", "Edit", "allow", "deny", "flow", "form"]
EXAMPLES += ["interrupt_tool", "notebook_tools", "review", "tool"]
WITH_EXAMPLE = [f"nb.{name}" for name in EXAMPLES] + [
    f"agent.{name}" for name in ("chat", "generate", "run", "run_sync", "tool")
]


@pytest.mark.parametrize("name", WITH_EXAMPLE)
async def test_c442_the_most_used_names_have_one_example_and_public_types_only(name):
    """Shift+Tab: the example uses names that exist, and types are spelled out, without quotes."""
    shown = InteractiveShell.instance().inspector.info(await looked_up(name))
    text = f"{shown['definition']} {shown['init_definition']}"
    assert not set(re.findall(r"\w+", text)) & {*SPELLED, "Returned"}, text
    assert ": '" not in text or name == "nb.notebook_tools", text
    [example] = re.findall(
        r"^Example:\n((?: {8}.*\n|\n)+)", f"{shown['docstring']}\n", re.MULTILINE
    )
    code = textwrap.dedent(example)
    assert name.partition(".")[2] in code
    tree = compile(code, name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    used = [each for each in ast.walk(tree) if isinstance(each, ast.Attribute)]
    ours = [
        each.attr for each in used if isinstance(each.value, ast.Name) and each.value.id == "nb"
    ]
    assert [each for each in ours if not hasattr(nb, each)] == []


REAL = {
    "Prompt": attachments.Prompt,
    "RunPending": generate.RunPending,
    "Pending": generate.Pending,
    "StoreLike": default.StoreLike,
    "Answers": scripted_answers.Answers,
    "Instructions": instructions.Instructions,
    "History": kept_history.History,
    "Condition": policy.Condition,
    "Approval": policy.Approval,
    "Choices": metadata.Choices,
    "Remember": interrupts.Remember,
}


@pytest.mark.parametrize("name", SPELLED)
def test_c443_a_type_is_spelled_as_it_is(name):
    """If a type changes, its shown spelling must change too."""
    modules = {"Instructions": instructions, "Choices": metadata, "History": kept_history}
    module = modules.get(name, policy)
    names = {**vars(typing), **vars(abc), **vars(module), "os": os, "Store": default.Store}
    names |= {one: getattr(nb, one) for one in ("PendingInterrupt", "RunView", "CallView")}
    assert eval(SPELLED[name], names) == REAL[name]


async def test_a_run_refers_to_the_place_of_its_text():
    """The error says to await the run first."""
    run = nb.Agent(nb.ScriptedModel(["hello"])).run("go", show=False)
    for name in ("text", "output", "finish_reason"):
        with pytest.raises(AttributeError, match=rf"`result = await run`, then `result.{name}`"):
            getattr(run, name)
    with pytest.raises(AttributeError, match="'Run' object has no attribute 'txet'"):
        run.txet  # noqa: B018 -- reading it is what fails
    await run


def test_the_guide_explains_every_name_and_no_other():
    assert set(re.findall(r"\bnb\.(\w+)", GUIDE)) == set(nb.__all__)


def public(thing):
    """The attributes that a user sees."""
    return {name for name in dir(thing) if not name.startswith("_")}


async def held(name):
    """An object of this class, as a user gets it."""
    call = nb.ScriptedModel.call
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "done"]), tools=[nb.interrupt_tool("ask")])
    if name in ("Response", "PendingInterrupt"):
        response = await agent.generate("go")
        return response if name == "Response" else response.interrupts[0]
    run = agent.run("go", answers=["yes"])
    flow = nb.flow(name="add")(lambda: 1)
    return {"Agent": agent, "Chat": agent.chat(), "Flow": flow, "Run": run, "Result": await run}[
        name
    ]


@pytest.mark.parametrize(
    "name", ["Agent", "Chat", "Flow", "Run", "Result", "Response", "PendingInterrupt"]
)
async def test_public_objects_show_only_documented_attributes(name):
    """Completion does not offer the engine's own attributes."""
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", GUIDE, re.MULTILINE)
    assert public(await held(name)) == set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize("name", nb.__all__)
def test_every_name_can_be_imported(name):
    """Names that load late can be imported too, and each has a docstring."""
    value = getattr(nb, name)
    if isinstance(value, type) or callable(value):
        assert value.__doc__


def test_a_missing_name_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match="nope"):
        _ = nb.nope


def test_importing_nbagent_loads_nothing_heavy():
    """Checked in a new process."""
    code = f"import sys, nbagent; print([n for n in {HEAVY} if n in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"


def test_checking_a_schema_builds_no_grammar_that_it_does_not_use():
    """Jupyter brings 38 grammars of IRIs, which jsonschema would build when it loads: seconds, on the kernel's loop."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(nb.__file__).parents[1]),
    }  # not tests/shadows
    code = (
        "import sys, nbagent.forms.answer.json_schema as ours, jsonschema\n"
        "print(ours.errors_of({'type': 'integer', 'format': 'iri'}, 1), 'lark' in sys.modules)\n"
        "iri = jsonschema.FormatChecker(['iri'])\n"
        "print(iri.conforms('http://a.b/c', 'iri'), iri.conforms('a b', 'iri'), 'lark' in sys.modules)\n"
        "import rfc3987_syntax\n"
        "print(rfc3987_syntax.is_valid_syntax_iri('http://a.b/c'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["[] False", "True False True", "True"]


def test_importing_nbagent_loads_only_what_is_used():
    """A notebook's first cell imports fast, because names load at first use."""
    code = "import sys, nbagent; print(sorted(n for n in sys.modules if n.startswith('nbagent')), 'pydantic' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    few = [
        "nbagent",
        "nbagent.core",
        "nbagent.core.base",
        "nbagent.core.base.controls",
        "nbagent.core.base.errors",
        "nbagent.core.hooks",
    ]
    assert ran.stdout.strip() == f"{few} False"


def test_a_scripted_conversation_needs_no_client():
    """Tests and notebooks with a ``ScriptedModel`` never load openai."""
    code = (
        "import asyncio, sys, nbagent as nb\n"
        "asyncio.run(nb.Agent(nb.ScriptedModel(['hi'])).generate('go'))\n"
        f"print([n for n in {HEAVY} if n in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("wrong", "right"), [("Confrim", "Confirm"), ("Toolcontext", "ToolContext"), ("aks", None)]
)
def test_a_mistyped_name_is_answered_with_the_right_one(wrong, right):
    """Only if a similar name exists."""
    with pytest.raises(AttributeError) as raised:
        getattr(nb, wrong)
    said = str(raised.value)
    assert (f"Did you mean {right!r}?" in said) if right else ("Did you mean" not in said)


def test_every_exception_that_nbagent_raises_can_be_caught_by_its_name():
    """They are in ``nb.errors``; a lookup at the root says so."""
    raised = [
        v for v in vars(errors).values() if isinstance(v, type) and v.__module__ == errors.__name__
    ]
    assert raised
    assert [one for one in raised if getattr(nb.errors, one.__name__) is not one] == []
    with pytest.raises(AttributeError, match=r"Use nb\.errors\.ToolFailed"):
        _ = nb.ToolFailed


def test_importing_nbagent_builds_no_validator():
    """Models are built at first use; one that is not deferred adds 15 ms to an import."""
    code = (
        "import nbagent, pydantic\n"
        "nbagent.Agent\n"
        "def below(c): return [c, *(d for s in c.__subclasses__() for d in below(s))]\n"
        "ours = [c for c in below(pydantic.BaseModel) if c.__module__.startswith('nbagent')]\n"
        "print(len(ours) > 10, [c.__name__ for c in ours if c.__pydantic_complete__])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "True []"
