"""Several real processes start a run with the same id at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbagent as nb

WORKER = """
import sys, time
import nbagent as nb
agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("work"), "by " + sys.argv[1]]))

@agent.tool
def work() -> str:
    "Work."
    with open("worked", "a") as file:
        file.write("once\\n")
    time.sleep(0.2)
    return "done"

print("ready", flush=True)
sys.stdin.readline()
print(agent.run_sync("Go.", id="one").text, flush=True)
"""


def test_c270_of_processes_that_start_one_id_at_once_one_works_and_all_get_its_result(
    tmp_path: Path,
) -> None:
    """Only the store of ``NBAGENT_STORE`` connects them: one process starts the run, the others follow it."""
    environment = {
        **os.environ,
        "NBAGENT_STORE": "runs.db",
        "PYTHONPATH": str(Path(nb.__file__).parents[1]),
    }
    command = [sys.executable, "-c", WORKER]
    workers = [
        subprocess.Popen(
            [*command, str(n)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = {worker.communicate(timeout=60)[0] for worker in workers}
    assert len(said) == 1
    assert said.pop().startswith("by ")
    assert (tmp_path / "worked").read_text() == "once\n"
    kinds = [event.type for event in nb.SQLiteStore(tmp_path / "runs.db").read("one")]
    assert kinds.count("run_started") == kinds.count("run_completed") == 1
