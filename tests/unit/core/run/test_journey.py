"""The page "Be the prompt" in docs/design.md, step by step."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import nbagent as nb

CORE = Path(nb.__file__).parent / "core"
DESIGN = CORE.parents[1] / "docs" / "design.md"
STEP = re.compile(r"^\| (\d+) \| `([a-z_/.]+)` \| `([A-Za-z_.]+)` \|", re.MULTILINE)


async def test_a_prompt_passes_the_steps_of_the_design_in_their_order() -> None:
    """Each step's function is entered for the first time after those of the steps before."""
    steps = [(f"{CORE}/{file}", name) for _, file, name in STEP.findall(DESIGN.read_text("utf-8"))]
    entered: dict[tuple[str, str], None] = {}

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(CORE)):
            entered.setdefault((code.co_filename, code.co_qualname))

    call = nb.ScriptedModel.call
    agent = nb.Agent(nb.ScriptedModel([call("pay", amount=5), "paid"]))

    @agent.tool
    def pay(amount: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Pay?"))
        return f"{amount}"

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run = agent.run("Pay 5", show=False, attended=True)
        await run.settled()
        run.restart(run.interrupts[0])
        assert (await run).text == "paid"
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert len(steps) == 15
    assert [step for step in entered if step in steps] == steps
