"""The decisions in runs, from their journals: who decided what, and what was displayed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from nbagent.core.arguments import checked_store
from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import (
    BodyCalled,
    Interrupted,
    ModelResponded,
    Resolved,
    RunStarted,
    StoredEvent,
    dump,
    question_digest,
)
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.messages import dumps
from nbagent.core.base.table import as_html, as_text, dataframe_of
from nbagent.core.journal.default import StoreLike, current_store
from nbagent.core.run.result import shortened
from nbagent.core.run.run import Run

MAX_SHOWN = 120
"""Characters of an input in the table."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One question of a run, and its answer."""

    run: str
    agent: str
    """The name of the outermost agent, or of the flow."""
    path: tuple[str, ...]
    """The names of the calls that lead to the question; the last name is the tool's."""
    tool: str
    kind: str
    """The kind of question, as in ``Interrupted``."""
    asked_at: datetime
    answered_at: datetime
    by: str
    """The source of the answer: ``form``, ``code``, ``command line``, ``external``, ``expiry`` …"""
    user: str
    """The person who answered, by the user name in their process; empty if no person answered."""
    decision: str
    """``approved``, ``changed`` (approved with another input), ``run again``, ``continued``, ``answered``,
    ``failed`` (marked as failed), ``rejected``, ``expired``."""
    reason: str
    """The reason of a rejection or a failure; empty if there is none."""
    shown: Any
    """The input that was displayed, with masks for secrets."""
    digest: str
    """SHA-256 of the display; an approval is valid only for this display."""
    answer: Any
    """The value of the answer, or the data of a restart; None if there is none."""
    changed: dict[str, tuple[Any, Any]]
    """The person's changes of the input: by name, the value before and after."""
    interrupt: str
    """The question's id."""
    question: str = ""
    """The text of the question; empty if only the call itself was shown."""

    @property
    def who(self) -> str:
        """The person, and the source of the answer in brackets; only the source if no person answered."""
        return f"{self.user} ({self.by})" if self.user else self.by

    @property
    def waited(self) -> float:
        """Seconds from the question to the answer."""
        return max(0.0, (self.answered_at - self.asked_at).total_seconds())


class Decisions(list[Decision]):
    """Decisions, oldest answer first. A notebook displays them as a table."""

    head = ("run", "tool", "decision", "who", "at (UTC)", "waited", "on")

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each decision.

        Raises:
            UsageError: pandas is not installed.
        """
        names = [field.name for field in fields(Decision)]
        rows = [{name: getattr(one, name) for name in names} for one in self]
        for row, one in zip(rows, self, strict=True):
            row["waited"] = one.waited
            row["path"] = " ▸ ".join(one.path)
        return dataframe_of(rows, [*names, "waited"])

    def __repr__(self) -> str:
        return as_text(self.head, self.rows()) if self else "no decisions"

    def _repr_html_(self) -> str | None:
        return as_html(self.head, self.rows()) if self else None

    def rows(self) -> list[tuple[str, ...]]:
        """One row for each decision, with a text for each name in ``head``."""
        return [
            (
                one.run,
                " ▸ ".join(one.path),
                f"{one.decision}: {shortened(one.reason)}" if one.reason else one.decision,
                one.who,
                f"{one.answered_at:%Y-%m-%d %H:%M:%S}",
                f"{one.waited:.0f} s",
                _on(one),
            )
            for one in self
        ]


@checks_keywords("nb.decisions")
def decisions(
    store: Run | StoreLike | None = None, *, agent: str | None = None, tool: str | None = None
) -> Decisions:
    """List the decisions of a store or a run: one row for each answered question, oldest answer first.

    Each call reads all journals, so do not call this function on an event loop if the store has many runs.

    Args:
        store: a store, to read all of its runs, or one run; by default the store of ``nb.use_store``, or
            this process's memory.
        agent: only decisions in runs of this agent or flow.
        tool: only decisions about this tool.

    Raises:
        StoreError: the store, or the journal of one of its runs, cannot be read.
        UsageError: ``store`` is neither a run nor a store.
    """
    found = [one for run_id, events in _journals(store) for one in decisions_in(run_id, events)]
    kept = (
        one
        for one in found
        if (agent is None or one.agent == agent) and (tool is None or one.tool == tool)
    )
    return Decisions(sorted(kept, key=lambda one: one.answered_at))


def _journals(source: Any) -> Iterator[tuple[str, list[StoredEvent]]]:
    if isinstance(source, Run):
        yield source.id, source.journal
        return
    store = current_store() if source is None else checked_store(source)
    for run_id in store.run_ids():
        try:
            yield run_id, store.read(run_id)
        except UsageError:  # the run was deleted meanwhile
            continue
        except StoreError as error:
            raise StoreError(f"run {run_id!r}: {error}") from error


def decisions_in(run_id: str, events: Iterable[StoredEvent]) -> Iterator[Decision]:
    """The decisions of one run's journal, in the order of its events."""
    agent = ""
    names: dict[str, str] = {}
    asked: dict[str, Interrupted] = {}
    for event in events:
        match event:
            case RunStarted(agent=name, scope=()):
                agent = name
            case ModelResponded(calls=calls):
                names |= {call.id: call.name for call in calls}
            case BodyCalled(call_id=call_id, name=name):
                names[call_id] = name
            case Interrupted():
                asked[event.id] = event
            case Resolved() if event.id in asked:
                path = tuple(names.get(call_id, agent) for call_id in event.scope)
                yield _decision(run_id, agent, path, asked.pop(event.id), event)
            case _:
                pass


def _decision(
    run_id: str, agent: str, path: tuple[str, ...], asked: Interrupted, answer: Resolved
) -> Decision:
    question, resolution = json.loads(dump(asked)), json.loads(dump(answer))["resolution"]
    shown = question["input"]
    return Decision(
        run=run_id,
        agent=agent,
        path=tuple(filter(None, (*path, asked.tool_name))),
        tool=asked.tool_name,
        kind=asked.kind,
        asked_at=datetime.fromtimestamp(asked.at, UTC),
        answered_at=datetime.fromtimestamp(answer.at, UTC),
        by=answer.by,
        user=answer.user,
        decision=_word(asked, answer, _changed(shown, resolution.get("input"))),
        reason=resolution.get("reason") or resolution.get("error") or "",
        shown=shown,
        digest=question_digest(asked) if asked.kind == "ask" or not asked.digest else asked.digest,
        answer=resolution.get("output", resolution.get("data")),
        changed=_changed(shown, resolution.get("input")),
        interrupt=asked.id,
        question=_question(question.get("metadata")),
    )


def _question(metadata: Any) -> str:
    """The text of a question, from the metadata of a tool or a rule."""
    content = metadata if isinstance(metadata, dict) else {"message": metadata}
    texts = (content.get(name) for name in ("message", "question"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _word(asked: Interrupted, answer: Resolved, changed: dict[str, Any]) -> str:
    if answer.by == "expiry":
        return "expired"
    match answer.resolution.type:
        case "reject":
            return "rejected"
        case "respond":
            return "failed" if getattr(answer.resolution, "error", None) else "answered"
        case "restart":
            if changed:
                return "changed"
            again = {"approval": "approved", "lost": "run again"}
            return again.get(asked.kind, "continued")


def _changed(before: dict[str, Any], after: dict[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    if after is None:
        return {}
    names = dict.fromkeys((*before, *after))
    both = {name: (before.get(name), after.get(name)) for name in names}
    return {name: (old, new) for name, (old, new) in both.items() if old != new}


def _on(one: Decision) -> str:
    """The question, and the displayed or changed input."""
    asked = shortened(one.question) if one.question else ""
    changes = (f"{name}: {dumps(old)} → {dumps(new)}" for name, (old, new) in one.changed.items())
    values = one.shown if isinstance(one.shown, dict) else {"": one.shown}
    text = ", ".join(f"{name}: {dumps(value)}" for name, value in values.items())
    shown = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return " · ".join(filter(None, (asked, ", ".join(changes) or shown)))
