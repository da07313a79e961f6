"""What a run says to whoever awaits it: its result, why there is none, or whom it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import Cancelled, HumanInputRequired, RunError, RunNotFinished
from .events import RunCancelled, RunCompleted, RunFailed
from .interrupts import PendingInterrupt
from .result import Result, calls_by_name
from .spec import RunSpec
from .state import RunState, paused_messages, status_of
from .wording import asks, wanted


def result_of(
    state: RunState, spec: RunSpec, error: BaseException | None, values: Mapping[str, Any]
) -> Result:
    """The result of a run that has ended well.

    Args:
        state: where the run stands.
        spec: what types its output.
        error: the very exception it failed with, where that is known in this process.
        values: the tools' own Python objects by call id.

    Raises:
        RunNotFinished: it has not ended.
        RunError: it failed or was cancelled.
    """
    match state.outcome:
        case RunCompleted() as done:
            output, calls = spec.typed_output(done.output), calls_by_name(state, values)
            return Result(done.text, output, state.messages, state.usage, calls)
        case RunFailed() as failed:
            said = f"{failed.error}: {failed.message}"
            raise error or RunError(said, messages=paused_messages(state))
        case RunCancelled(by=by):
            raise Cancelled(f"the run was cancelled (by {by})", messages=paused_messages(state))
        case None:
            raise RunNotFinished(
                f"the run is {status_of(state)}, so there is no result yet: `await run` waits for it"
            )


def unanswered(
    asked: Sequence[PendingInterrupt], wrong: Mapping[str, Exception], run_id: str
) -> Exception:
    """What to raise for a run that asks while nobody is there to answer.

    Args:
        asked: what waits for an answer.
        wrong: what was wrong with answers that were given, by interrupt id.
        run_id: the run.
    """
    for interrupt in asked:
        if interrupt.id in wrong:
            return wrong[interrupt.id]
    lines = [
        f"- {i.tool_name or 'the limit'} (interrupt {i.id}), input {dict(i.input)!r}, "
        f"{asks(i)}; {wanted(i)}"
        for i in asked
    ]
    text = (
        "the run waits for a person and nobody is attached; it stays paused. Give answers=, or "
        "answer with run.respond / run.restart / run.reject:\n" + "\n".join(lines)
    )
    return HumanInputRequired(text, interrupts=list(asked), run_id=run_id)
