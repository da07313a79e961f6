"""The buttons of a question."""

from __future__ import annotations

from .texts import TEXTS
from .wire import Action


def answering() -> tuple[Action, ...]:
    """The buttons of a question that an answer is sent to."""
    return (
        Action(name="submit", label=TEXTS["send"], primary=True),
        Action(name="reject", label=TEXTS["decline"], reason=True),
    )


def budget() -> tuple[Action, ...]:
    """The buttons where a run has used up its turns."""
    return (
        Action(name="submit", label=TEXTS["go_on"], primary=True),
        Action(name="reject", label=TEXTS["stop_here"]),
    )


def approving(*, danger: bool, changes: bool) -> tuple[Action, ...]:
    """The buttons of a call that waits to be approved."""
    changed = TEXTS["approve_changed"] if changes else None
    return (
        Action(
            name="approve",
            label=TEXTS["approve"],
            changed_label=changed,
            primary=True,
            danger=danger,
        ),
        Action(name="reject", label=TEXTS["reject"], reason=True),
    )
