"""Runs with a chosen id: an existing run of that id is opened, and never started twice."""

from __future__ import annotations

import re
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import RunQueued, RunStarted, StoredEvent
from nbagent.core.base.file_parts import Content, in_words
from nbagent.core.base.messages import is_prompt, text_of, user
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.store import Store
from nbagent.core.tools.spec import RunSpec

from .session import Session, find_session

_ID = re.compile(r"[\w.:@+-]+")
MAX_ID = 100
"""Maximum characters of a run's id."""
_SHOWN = 60
"""Characters of a prompt in an error."""


def checked_id(given: Any, what: str, limit: int = MAX_ID) -> str:
    """Check an id that a person chose, and return it.

    Raises:
        UsageError: the id is not valid; ``what`` names the kind of id in the message.
    """
    if isinstance(given, str) and len(given) <= limit and _ID.fullmatch(given):
        return given
    raise UsageError(
        f"{what} id must be a string of letters, digits and .:@+-_ with at most {limit} characters, got {given!r:.80}"
    )


def found(run_id: str, store: Store) -> Session | Journal | None:
    """The run of this id: its session in this process, else its stored journal; None if there is no such run.

    Raises:
        StoreError: the journal cannot be read.
    """
    session = find_session(run_id, store)
    if session is not None:
        return session
    journal = Journal(run_id, store)
    try:
        journal.catch_up()
    except UsageError:  # there is no such run
        return None
    return journal


class RunRequest:
    """The request for a run, to be compared with the stored run of the same id.

    Args:
        spec: the spec of the agent or flow.
        prompt: the prompt; None if there is none.
        call: the input of a flow.
    """

    def __init__(self, spec: RunSpec, prompt: Content | None, call: Any = None) -> None:
        self._spec = spec
        self._prompt = prompt
        self._call = call

    @property
    def is_nothing(self) -> bool:
        """Whether the request has neither a prompt nor a flow's input."""
        return self._prompt is None and self._call is None

    def missing(self, journal: Journal) -> UsageError:
        """The error for a run that does not exist and has no prompt to start with."""
        return UsageError(
            f"{journal.store!r} has no run {journal.run_id!r}. Pass a prompt to start it"
        )

    def check(self, journal: Journal) -> None:
        """Check that a stored run has the agent and prompt of this request.

        Raises:
            UsageError: one of them is different; the message shows both values, and what to do.
        """
        events = journal.read()[:1]
        if not events:  # the write of its first event is pending
            return
        first = events[0]
        agent, kept = _agent_and_prompt(first)
        name = f"the run {journal.run_id!r} in {journal.store!r}"
        if agent != self._spec.agent:
            raise UsageError(
                f"{name} belongs to {agent!r}, not to {self._spec.agent!r}. Use another id"
            )
        if self._call is not None:
            then, now, same = f"{kept!r}", f"{self._call!r}", kept == self._call
        elif self._prompt is None:
            return
        else:
            then = "nothing" if not kept else text_of(kept) or "files"
            now, same = in_words(self._prompt), kept == user(self._prompt)
        if not same:
            raise UsageError(
                f"{name} has the prompt {then:.{_SHOWN}}, not {now:.{_SHOWN}}. Leave out the prompt to open that run, or use another id. To continue a conversation, use agent.chat(id=…)"
            )


def _agent_and_prompt(event: StoredEvent) -> tuple[str, Any]:
    """The agent of a run, and its prompt as a message; for a flow, its input."""
    match event:
        case RunQueued(agent=agent, prompt=prompt):
            return agent, user(prompt)
        case RunStarted(flow=True, agent=agent, messages=messages):
            return agent, messages[-1]["content"][-1]["input"]
        case RunStarted(agent=agent, messages=messages):
            return agent, next((m for m in reversed(messages) if is_prompt(m)), None)
        case _:
            return "", None
