"""The public names: sorted, there, and cheap to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nbagent as nb
from nbagent.core.base import errors

HEAVY = [
    "openai",
    "IPython",
    "ipykernel",
    "anywidget",
    "ipywidgets",
    "httpx2",
    "httpx",
    "numpy",
    "pandas",
]


def test_the_names_are_sorted_and_documented_by_dir():
    """One list, without doubles."""
    assert sorted(set(nb.__all__)) == nb.__all__
    assert dir(nb) == nb.__all__


@pytest.mark.parametrize("name", nb.__all__)
def test_every_name_can_be_imported(name):
    """Those that load late too, and each says what it is."""
    value = getattr(nb, name)
    if isinstance(value, type) or callable(value):
        assert value.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match="nope"):
        _ = nb.nope


def test_importing_nbagent_loads_nothing_heavy():
    """In a process of its own."""
    code = f"import sys, nbagent; print([n for n in {HEAVY} if n in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"


def test_a_scripted_conversation_needs_no_client():
    """Tests and notebooks on the double never load openai."""
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
def test_a_name_that_is_mistyped_is_told_with_the_right_one(wrong, right):
    """Where one is near."""
    with pytest.raises(AttributeError) as raised:
        getattr(nb, wrong)
    said = str(raised.value)
    assert (f"did you mean {right!r}?" in said) if right else ("did you mean" not in said)


def test_every_exception_that_nbagent_raises_can_be_caught_by_its_name():
    """From the root, as ``except nb.ToolFailed``."""
    raised = [
        v for v in vars(errors).values() if isinstance(v, type) and v.__module__ == errors.__name__
    ]
    assert [one.__name__ for one in raised if getattr(nb, one.__name__, None) is not one] == []


def test_importing_nbagent_builds_no_validator():
    """A model is built when it is first used: one that isn't deferred costs an import 15 ms."""
    code = (
        "import nbagent, pydantic\n"
        "def below(c): return [c, *(d for s in c.__subclasses__() for d in below(s))]\n"
        "ours = [c for c in below(pydantic.BaseModel) if c.__module__.startswith('nbagent')]\n"
        "print(len(ours) > 10, [c.__name__ for c in ours if c.__pydantic_complete__])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "True []"
