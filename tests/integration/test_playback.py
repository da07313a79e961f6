"""``nbagent record`` with a real server and ``nbagent replay`` without one, on notebooks."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest

from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.office import KEY, NOTEBOOKS, nbagent, record

NAME = "07_testing.ipynb"
SESSION = "07_testing_files/session.json"


def without_a_model(**more: str) -> dict[str, str]:
    """Environment variables with which no model can be reached."""
    kept = {name: value for name, value in os.environ.items() if "OPENAI" not in name}
    return {**kept, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", **more}


def test_the_notebook_of_the_page_matches_its_server(tmp_path):
    """A new recording over HTTP equals the committed recording, byte for byte, and has no key."""
    notebook = tmp_path / NAME
    shutil.copy(NOTEBOOKS / NAME, notebook)
    done = record(notebook)
    assert done.returncode == 0, done.stderr
    found = (tmp_path / SESSION).read_bytes()
    assert found == (NOTEBOOKS / SESSION).read_bytes()
    assert KEY.encode() not in found


PLAIN = '''
import nbagent as nb

sent = []


def send(to: str, amount: float) -> str:
    """Move money."""
    sent.append(to)
    return f"sent {amount} to {to}, with tok-en-value-42"


async def check(ctx: nb.ToolContext) -> str:
    """Ask which account."""
    return await ctx.ask(nb.Ask(message="Which account?"))


agent = nb.Agent("gpt-5.1", tools=[send, check], policy=[nb.review("send")])
run = agent.run("Send 5")
result = await run
'''
SCRIPT = [
    Reply(calls=[("check", {})]),
    Reply(calls=[("send", {"to": "A1", "amount": 5})]),
    Reply("Sent."),
]


def notebook_of(path: Path, *cells: str) -> Path:
    """Write a notebook with these cells."""
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    for number, cell in enumerate(content.cells):
        cell["id"] = f"cell-{number}"
    nbformat.write(content, path)
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A notebook without recording code, recorded by the command."""
    folder = tmp_path_factory.mktemp("plain")
    notebook = notebook_of(folder / "demo.ipynb", PLAIN, "print(result.text, sent)\nrun")
    answers = folder / "answers.json"
    answers.write_text(json.dumps({"check": "A1", "send": True}))
    with ChatServer(SCRIPT) as server:
        environment = without_a_model(
            OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY, MY_TOKEN="tok-en-value-42"
        )
        done = nbagent("record", notebook, "--answers", answers, env=environment)
    assert done.returncode == 0, done.stderr
    return notebook, done.stdout


def test_any_notebook_is_recorded_and_replayed_unchanged(recorded, tmp_path):
    """Every model and question is recorded; the card looks the same in each replay."""
    notebook, told = recorded
    assert "Recorded 3 exchanges and 2 human answers" in told
    assert "Scrubbed: 1 of MY_TOKEN" in told
    text = notebook.with_name("demo.recorded.json").read_text()
    assert "tok-en-value-42" not in text
    assert not notebook.with_name("demo.recorded.json.draft").exists()
    outputs = [tmp_path / f"{name}.ipynb" for name in ("one", "two")]
    for output in outputs:
        done = nbagent(
            "replay", notebook, "--output", output, env=without_a_model(MY_TOKEN="tok-en-value-42")
        )
        assert done.returncode == 0, done.stderr
        assert "no model was called" in done.stdout
    assert "Sent. ['A1']" in outputs[0].read_text()
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_drift_fails_with_the_difference_and_exit_code_1(recorded, tmp_path):
    """The terminal shows the cell, the recorded request and the difference."""
    notebook, _ = recorded
    other = notebook_of(tmp_path / "demo.ipynb", PLAIN.replace("Send 5", "Send 50"))
    recording = notebook.with_name("demo.recorded.json")
    done = nbagent("replay", other, "--recording", recording, env=without_a_model())
    assert done.returncode == 1
    assert "Code cell 1 failed: NotRecorded" in done.stderr
    assert "Send 50" in done.stderr
    assert "recorded as number 1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", ["no file", "no notebook", "no recording"])
def test_the_reason_why_a_notebook_cannot_be_replayed_is_named(wrong, tmp_path):
    """The exit code is 1, and a line names the missing or invalid file."""
    notebook = tmp_path / "demo.ipynb"
    if wrong == "no notebook":
        notebook.write_text("{")
    elif wrong == "no recording":
        notebook_of(notebook, PLAIN)
    done = nbagent("replay", notebook, env=without_a_model())
    assert done.returncode == 1
    assert ("demo.recorded.json" if wrong == "no recording" else "demo.ipynb") in done.stderr
    assert "Traceback" not in done.stderr


EMPTY = '{"nbagent_recording": 1, "scrubbed": {}, "session": []}'


def test_a_dead_kernel_is_reported_with_its_last_words(tmp_path):
    """The output of a kernel that ends normally is not shown."""
    dies = "import os\nos.write(2, b'out of paper')\nos._exit(3)"
    notebook = notebook_of(tmp_path / "demo.ipynb", [dies])
    (tmp_path / "demo.recorded.json").write_text(EMPTY)
    done = nbagent("replay", notebook, env=without_a_model())
    assert done.returncode == 1
    assert "The kernel died" in done.stderr
    notebook_of(notebook, ["import sys, os\nos.write(sys.__stderr__.fileno(), b'noise')"])
    assert nbagent("replay", notebook, env=without_a_model()).stderr == ""


LATER = """
print(result.text, sent)
later = nb.Agent("gpt-5.1", instructions="Be brief.").run("Anything else?")
later
"""
CHANGES: dict[str, tuple[str, str, list[str]]] = {
    "nothing": (PLAIN, LATER, []),
    "the last cell is gone": (
        PLAIN,
        "",
        [
            "1 of 4 exchanges\n",
            'exchange 6 (gpt-5.1, instructions "Be brief."): prompt "Anything else?" → "No."',
        ],
    ),
    "all cells are gone": ("print(1)", "", ["4 of 4 exchanges, 2 of 2 human answers"]),
    "an approval was removed": (
        PLAIN.replace(', policy=[nb.review("send")]', ""),
        LATER,
        [
            "1 of 2 human answers\n",
            'answer 4 (approval of send {"to": "A1", "amount": 5}): approved',
        ],
    ),
    "code approves": (
        PLAIN.replace('run("Send 5")', 'run("Send 5", answers={"send": True})'),
        LATER,
        ["1 of 2 human answers\n"],
    ),
    "a run that no cell awaits": (PLAIN, LATER.replace("\nlater\n", "\nprint(later)\n"), []),
    "a run that no cell awaits asks otherwise": (
        PLAIN,
        LATER.replace("\nlater\n", "\nprint(later)\n").replace("else", "more"),
        ["1 of 4 exchanges\n"],
    ),
}


@pytest.fixture(scope="module")
def recorded_twice(tmp_path_factory):
    """A recording of two runs; the second run is a cell's value."""
    folder = tmp_path_factory.mktemp("twice")
    notebook = notebook_of(folder / "demo.ipynb", PLAIN, LATER)
    answers = folder / "answers.json"
    answers.write_text(json.dumps({"check": "A1", "send": True}))
    with ChatServer([*SCRIPT, Reply("No.")]) as server:
        environment = without_a_model(OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY)
        done = nbagent("record", notebook, "--answers", answers, env=environment)
    assert done.returncode == 0, done.stderr
    return notebook.with_name("demo.recorded.json")


@pytest.mark.variant
@pytest.mark.parametrize("change", CHANGES)
def test_c386_a_replay_fails_if_a_recorded_request_is_no_longer_made(
    change, recorded_twice, tmp_path
):
    """The error names the request and says what to do; the output notebook is not written."""
    first, second, expected = CHANGES[change]
    notebook = notebook_of(tmp_path / "demo.ipynb", *filter(None, [first, second]))
    output = tmp_path / "out.ipynb"
    done = nbagent(
        "replay",
        notebook,
        "--recording",
        recorded_twice,
        "--output",
        output,
        env=without_a_model(),
    )
    assert done.returncode == (1 if expected else 0), done.stderr
    assert all(line in done.stderr for line in expected), done.stderr
    assert bool(expected) == (
        f"record the notebook again: nbagent record {notebook}" in done.stderr
    )
    assert output.exists() != bool(expected)
    if output.exists():
        assert "_playback" not in output.read_text()


OWN = """
import nbagent as nb
for question in {questions}:
    model = nb.RecordedModel("own.json", nb.ScriptedModel(["a"]){more})
    print((await nb.Agent(model).run(question)).text)
"""


@pytest.mark.parametrize("more", ["", ', mode="replay"'])
def test_c386_recordings_made_by_the_notebook_itself_count_if_the_command_makes_them(
    more, tmp_path
):
    """Models with the same file count together; entries that a notebook replays itself are not checked."""
    notebook = tmp_path / "demo.ipynb"
    notebook_of(notebook, OWN.format(questions=["one", "two"], more=""))
    session = {"nbagent_recording": 1, "scrubbed": {}, "session": []}
    for number, question in enumerate(["one", "two"], 1):
        asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": question}]}]}
        answer = {"said": [{"text": "a"}], "finished": {"reason": "stop"}}
        session["session"] += [
            {"number": number, "model": "scripted", "request": asked, "answer": answer}
        ]
    (tmp_path / "own.json").write_text(json.dumps(session))
    assert nbagent("replay", notebook, env=without_a_model()).returncode == 0
    notebook_of(notebook, OWN.format(questions=["one"], more=more))
    done = nbagent("replay", notebook, env=without_a_model())
    assert done.returncode == (0 if more else 1), done.stderr
    assert ("Unused entries of 'own.json': 1 of 2 exchanges" in done.stderr) != bool(more)


SHOWN = PLAIN.replace("result = await run", "run")
"""The notebook in which the run is the cell's value."""


def test_c388_a_run_that_fails_while_it_is_shown_is_reported_with_its_own_error(tmp_path):
    """The error says what to do and lists the exchanges until then; an earlier recording stays, no other file does."""
    notebook = notebook_of(tmp_path / "demo.ipynb", "1 + 1", SHOWN)
    kept = tmp_path / "demo.recorded.json"
    kept.write_text("the earlier one")
    with ChatServer(SCRIPT) as server:
        environment = without_a_model(OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY)
        done = nbagent("record", notebook, env=environment)
    assert done.returncode == 1
    assert kept.read_text() == "the earlier one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.ipynb", "demo.recorded.json"]
    assert "Code cell 2 failed: HumanInputRequired: The run is paused" in done.stderr
    assert 'asks "Which account?"' in done.stderr
    assert "--answers ANSWERS.json" in done.stderr
    assert "set NBAGENT_RECORD to the path of the recording" in done.stderr
    assert "NoneType" not in done.stderr
    assert 'exchange 1 (gpt-5.1): prompt "Send 5" → call of check' in done.stderr


def test_c388_a_recording_with_only_failures_says_so(tmp_path):
    """The notebook continues after the failures; no file is written, and the last error is reported."""
    tries = SHOWN.replace(
        "\nrun\n", "\ntry:\n    await run\nexcept nb.errors.ModelError:\n    pass\n"
    )
    notebook = notebook_of(tmp_path / "demo.ipynb", tries)
    with ChatServer([Refuse(401)]) as server:
        environment = without_a_model(OPENAI_BASE_URL=server.url, OPENAI_API_KEY=KEY)
        done = nbagent("record", notebook, env=environment)
    assert done.returncode == 1
    assert "because the model answered no request. The last error: " in done.stderr
    assert "401" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.ipynb"]


def test_c388_an_earlier_allowed_error_is_not_reported_as_the_failing_cell(tmp_path):
    """A cell tagged raises-exception may fail; the cell that really failed is named."""
    notebook = notebook_of(tmp_path / "demo.ipynb", "1 / 0", "[][1]")
    content = nbformat.read(notebook, as_version=4)
    content.cells[0].metadata["tags"] = ["raises-exception"]
    nbformat.write(content, notebook)
    done = nbagent("replay", notebook, env=without_a_model())
    assert done.returncode == 1
    assert "Code cell 2 failed: IndexError" in done.stderr


def test_c386_a_recording_that_nothing_uses_is_reported_for_deletion(tmp_path):
    """A new recording keeps the unused file and says so."""
    notebook = notebook_of(tmp_path / "demo.ipynb", "1 + 1")
    (tmp_path / "demo.recorded.json").write_text("{}")
    done = nbagent("record", notebook, env=without_a_model())
    assert done.returncode == 0
    assert "no longer used. You can delete it" in done.stdout
