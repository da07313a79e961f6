"""Two real processes race on one run, repeatedly: answers, cancels and deadlines."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from tests.integration.processes import Process, beginning, effects

ROUNDS = 24
ASK = ["ask", {"question": "a or b?"}]
GATE = ["gate", {"amount": 1}]
HURRIED = ["hurried", {}]


def paused_run(both: list[Process], tool: list[Any]) -> Any:
    """A run that both processes have open, paused at a tool and a question."""
    run = both[0].ask("start", calls=[tool, ASK])
    both[1].ask("open", run_id=run["id"])
    return run


def ended(both: list[Process], run: Any) -> Any:
    """The run's end, which both processes must report equally."""
    ends = [process.ask("finish", run_id=run["id"]) for process in both]
    assert ends[0] == ends[1]
    return ends[0]


def test_p2_c132_if_two_processes_answer_cancel_or_expire_at_once_one_of_them_wins(
    tmp_path: Path,
) -> None:
    """Only accepted calls run, once; both processes have the same journal and end."""
    with beginning(tmp_path) as new:
        both = [new(), new()]
        for k in range(ROUNDS):
            before = effects(tmp_path)
            kind = ("answers", "cancel", "deadline")[k % 3]
            tool = "hurried" if kind == "deadline" else "gate"
            run = paused_run(both, HURRIED if kind == "deadline" else GATE)
            at = run["deadlines"].get("hurried") or time.time() + 0.03
            answer = {"run_id": run["id"], "interrupt": run["interrupts"].get(tool, "gone")}
            both[k % 2].tell("answer", **answer, at=at, data="yes")
            if kind == "cancel":
                both[1 - k % 2].tell("cancel", run_id=run["id"], at=at)
            else:
                both[1 - k % 2].tell("answer", **answer, at=at, data="too")
            said = [process.hear() for process in both]
            won = said.count("won")
            assert won <= 1
            assert kind != "answers" or re.search("is already answered .*by code at 20", str(said))
            assert won == 1 or kind != "answers"
            if kind != "cancel":
                both[0].ask(
                    "answer", run_id=run["id"], interrupt=run["interrupts"]["ask"], at=0, output="b"
                )
            end = ended(both, run)
            done = effects(tmp_path)[len(before) :]
            assert done == [tool] * won or (kind == "cancel" and done == [])
            assert end["status"] == ("cancelled" if kind == "cancel" else "completed")
            assert end["heard"].count("resolved") == (won if kind == "cancel" else 2)
            assert end["heard"].count("tool_finished") <= won
