"""``%%agent`` in real kernels: prompts, answers, errors, forms and typing mistakes."""

from __future__ import annotations

import pytest

from tests.integration.kernels import NEWEST, front_end
from tests.integration.test_runs_in_kernels import Page

SETUP = """
import dataclasses, pydantic
class Row(pydantic.BaseModel):
    city: str
    people: int

def model(*steps):
    return nb.ScriptedModel(list(steps))
"""


@pytest.mark.parametrize("version", ["6.29.5", "7.0.1", NEWEST])
def test_c231_a_cell_asks_an_agent_and_its_form_answers_meanwhile(version):
    """The cell waits, an approval arrives, and the answer is in the variable, typed or as a DataFrame."""
    with front_end(version, subshell=version.startswith("7.0")) as kernel:
        page = Page(kernel)
        kernel.must_run(SETUP)
        kernel.must_run("%load_ext nbagent")
        assert "the demo answers" in page_run(page, "%agent -o hello What can you do?")
        assert kernel.must_run("print(bool(hello))") == "True\n"
        kernel.must_run('banker = agent([call("transfer", amount=5)], "all done")')
        request = page.start("%%agent banker -o said\nSend {{it}}")
        card = page.card()
        page.press(card, page.question(card))
        outcome = kernel.finish(request)
        assert outcome.status == "ok", kernel.errors()
        assert kernel.must_run("print(said, ran)") == "all done [5]\n"
        kernel.must_run(
            'cities = nb.Agent(model(\'{"value": [{"city": "Rome", "people": 3}]}\'), output_type=list[Row])'
        )
        told = page_run(page, "%agent -o rows --df cities Which cities?")
        assert "cities answers" not in told
        assert (
            kernel.must_run("print(rows.to_dict('records'))") == "[{'city': 'Rome', 'people': 3}]\n"
        )


def page_run(page: Page, code: str) -> str:
    """Run a cell that must succeed; return its printed output."""
    outcome = page.kernel.run(code)
    assert outcome.status == "ok", page.kernel.errors()
    return outcome.stdout


@pytest.fixture(scope="module")
def cells():
    """A kernel with the magics and an agent that echoes the prompt."""
    with front_end() as kernel:
        page = Page(kernel)
        kernel.must_run(SETUP)
        kernel.must_run(
            "%load_ext nbagent\n"
            "import pandas as pd\n"
            "echo = nb.Agent(nb.ScriptedModel(lambda messages: messages[-1]['content'][0]['text']), name='echo')\n"
            "frame = pd.DataFrame({'a': range(1000), 'b': 1.5})\n"
            "big, price, trip = 'x' * 100_000, 3.14159, {'to': 'Rome'}"
        )
        yield page


PROMPTS = {
    "{price:.2f} or {price}": "3.14 or 3.14159",
    "to {trip['to']} {trip}": "to Rome {'to': 'Rome'}",
    '{{price}} {"json": 1} {} { price }': '{price} {"json": 1} {} { price }',
    "{frame.shape[0]}": "1000",
    "{price!r}": "3.14159",
}


def test_c232_variables_of_the_notebook_are_put_into_the_prompt_bounded(cells):
    """Variables work as in an f-string; other braces stay; a table is described by its first rows."""
    for prompt, told in PROMPTS.items():
        page_run(cells, f"%%agent -o said\n{prompt}")
        assert cells.kernel.must_run("print(said)") == f"{told}\n"
    page_run(cells, "%%agent -o said\nSee {frame} and {big}")
    told = cells.kernel.must_run("print(len(said)); print(said)")
    assert int(told.split()[0]) < 10_000
    assert "See @frame and xxx" in told  # the table's description is a separate part
    assert "characters left out" in told
    told = cells.kernel.must_run(
        "import base64; part = echo.model.requests[-1].messages[-1]['content'][1]\n"
        "print(part['name']); print(base64.b64decode(part['data']).decode())"
    )
    assert told.startswith("@frame\ntable (pandas.DataFrame) of 1,000 rows \u00d7 2 columns\n")
    assert "4\t1.5" in told
    assert "5\t1.5" not in told


MISTAKES = {
    "%%agent nobody\nHi": "'nobody' is not defined",
    "%%agent ecko\nHi": "Did you mean 'echo'",
    "%%agent price\nHi": "'price' is no agent",
    "%%agent echo again\nHi": "the name of one agent",
    "%%agent\n  \n": "prompt is missing",
    "%agent": "prompt is missing",
    "%%agent --fast\nHi": "--fast",
    "%%agent -o 1x\nHi": "the name of a variable",
    "%%agent\nHi {nothing}": "NameError",
    "%%agent\nHi {trip['x']}": "KeyError",
    "%%agent echo --df\nno rows": "output_type=list[Row]",
    "%%agent fails\nHi": "the server is away",
}


def test_c232_a_mistake_is_an_error_of_the_cell_that_says_what_to_do(cells):
    cells.kernel.must_run(
        "def fail(_): raise nb.errors.ModelError('the server is away')\n"
        "fails = nb.Agent(nb.ScriptedModel(fail), name='fails')"
    )
    for code, told in MISTAKES.items():
        cells.kernel.seen.clear()
        assert cells.kernel.run(code).status == "error", code
        assert told in cells.kernel.errors() + cells.kernel.printed() + str(cells.kernel.seen), code
    assert cells.kernel.run("%%agent echo -o kept --df\nno rows").status == "error"
    assert "no rows" in cells.kernel.must_run("print(kept)"), "the paid answer is kept"


def test_c232_names_are_completed_and_help_is_shown(cells):
    """Agents and options are completed; of two agents, the newest answers, and the output says so."""
    assert "-o NAME" in page_run(cells, "%agent --help")
    complete = "print(get_ipython().complete(None, {!r}, {})[1])"
    assert "echo" in cells.kernel.must_run(complete.format("%%agent ec", 10))
    assert "--df" in cells.kernel.must_run(complete.format("%%agent --", 10))
    cells.kernel.must_run("other = nb.Agent(nb.ScriptedModel(['other here']), name='other')")
    assert "other answers, because its variable is the newest" in page_run(
        cells, "%agent -o said Hi"
    )
    assert cells.kernel.must_run("print(said)") == "other here\n"


def test_c444_a_magic_that_is_not_loaded_says_what_to_type():
    """The hint needs only the import of nbagent; then the magic is loaded as usual."""
    with front_end() as kernel:
        kernel.must_run("import nbagent as nb\necho = nb.Agent(nb.ScriptedModel(['hello']))")
        for code in ("%%agent\nHi", "%agent Hi"):
            kernel.seen.clear()
            assert kernel.run(code).status == "error"
            assert "Run  %load_ext nbagent  in a cell" in f"{kernel.errors()}{kernel.seen}"
        kernel.must_run("%load_ext nbagent")
        kernel.must_run("%agent -o said Hi")
        assert kernel.must_run("print(said)") == "hello\n"


def test_c232_without_a_person_the_cell_shows_the_run_or_fails():
    """The cell runs as in nbclient and nbval."""
    with front_end() as kernel:
        Page(kernel)
        kernel.must_run(
            "%load_ext nbagent\nbanker = agent([call('transfer', amount=5)], 'all done')"
        )
        outcome = kernel.run("%%agent\ngo", allow_stdin=False)
        assert (outcome.status, outcome.error) == ("error", "HumanInputRequired")
        kernel.must_run("banker = nb.Agent(nb.ScriptedModel(['all done']), name='banker')")
        outcome = kernel.run("%%agent\ngo", allow_stdin=False)
        assert outcome.status == "ok"
        assert "all done" in outcome.displays[-1]["text/plain"]
