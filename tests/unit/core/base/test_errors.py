"""The tree of exceptions, and the interrupt signal, which is not in the tree."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import nbagent as nb
from nbagent.core.base import errors


def drawn() -> dict[str, str]:
    """The parent of each class, as drawn in the module's docstring."""
    parents: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in inspect.getdoc(errors).splitlines():
        match = re.match(r"^([│├└─\s]*)([A-Z]\w+)(\s{2,}|$)", line)
        if match and (match[1] or match[2] == "NbagentError"):
            depth = len(match[1])
            while stack and stack[-1][0] >= depth:
                stack.pop()
            if stack:
                parents[match[2]] = stack[-1][1]
            stack.append((depth, match[2]))
    return parents


def defined() -> dict[str, str]:
    """The parent of each class in the code."""
    found = [
        c
        for c in vars(errors).values()
        if isinstance(c, type) and issubclass(c, errors.NbagentError)
    ]
    return {c.__name__: c.__bases__[0].__name__ for c in found if c is not errors.NbagentError}


def test_the_error_tree_in_the_docstring_matches_the_classes():
    assert drawn() == defined()


def test_the_interrupt_signal_is_not_an_exception():
    """``except Exception`` in a tool does not catch it."""
    assert issubclass(nb.Interrupt, BaseException)
    assert not issubclass(nb.Interrupt, Exception)


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (nb.errors.InvalidAnswer, ValueError),
        (nb.errors.NotPending, LookupError),
        (errors.MessagesError, ValueError),
    ],
)
def test_some_errors_are_also_builtin_python_errors(ours, builtin):
    """So a plain except catches them."""
    assert issubclass(ours, builtin)


async def test_the_error_of_an_open_question_reaches_another_process():
    """A pool sends it pickled; the interrupts stay behind, as they have the tools."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay")]))

    @agent.tool(approval=True)
    def pay() -> str:
        return "paid"

    with pytest.raises(nb.HumanInputRequired) as caught:
        await agent.run("go")
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (str(sent), sent.run_id) == (str(caught.value), caught.value.run_id)
    assert (len(caught.value.interrupts), sent.interrupts) == (1, ())


WRONG = {
    "nb.Choose('x')": "Choose() needs 'choices', as in Choose(message, choices)",
    "nb.Choose('x', 3)": "Choose() got 'choices' of type int: it should be a valid list",
    "nb.Choose('x', ['a'], mutliple=True)": "Choose() got an unexpected keyword argument 'mutliple'. "
    "Did you mean 'multiple'?",
    "nb.Confirm()": "Confirm() needs 'message', as in Confirm(message)",
    "nb.Ask(3)": "Ask() got 'message' of type int: it should be a valid string",
    "nb.Edit('x', fields='a')": "Edit() got 'fields' of type str: it should be a valid list",
    "nb.Option()": "Option() needs 'value', as in Option(value, label, help)",
    "nb.Reject(3)": "Reject() got 'reason' of type int: it should be a valid string",
    "nb.Restart(3)": "Restart() got 'input' of type int: it should be a valid dictionary",
    "nb.Respond(1, error='x')": "Respond() is wrong: An answer can have an output or an error, not both",
}


@pytest.mark.parametrize("code", WRONG)
def test_c686_a_question_or_answer_with_wrong_arguments_is_one_line(code):
    """The line names what is missing or wrong, without pydantic's text, and a notebook shows only it."""
    with pytest.raises((TypeError, ValueError)) as error:
        eval(code)
    assert type(error.value) is (ValueError if "not both" in WRONG[code] else TypeError)
    assert str(error.value) == WRONG[code]
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    assert hasattr(error.value, "_render_traceback_")
