"""The replay of a recording: the recorded answers to requests, and people's answers to questions."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nbagent.core.base.errors import ModelConfigError, NotRecorded, UsageError
from nbagent.core.base.events import Interrupted, Resolved
from nbagent.core.base.interrupts import PendingInterrupt, Resolution
from nbagent.core.base.messages import canonical
from nbagent.core.base.secrets import MASK
from nbagent.core.run.answers import AnyResolution

from .compare import Comparable, masks_alike
from .exchange import answer_in_words, exchange_in_words, question_json
from .recording import NO_PERSON, load
from .scrub import Change, Scrubber

MAX_LISTED = 5
"""The maximum number of unused entries that an error describes."""


class Replay:
    """The answers of one recording.

    Equal requests get their answers in recorded order. Further equal requests get the last answer again,
    because a repeated cell sends the same request. Each answer of a person is used once. ``scrub`` removes the
    same secrets as in the recording, so that equal requests stay equal.

    Raises:
        ModelConfigError: the recording does not exist, or cannot be read.
    """

    def __init__(self, path: Path, scrub: Scrubber, ignore: tuple[Change, ...]) -> None:
        self.path = path
        self.scrub = scrub
        self._ignore = ignore
        self._lock = threading.Lock()
        self._entries = entries = load(path)
        self._exchanges = [entry for entry in entries if "request" in entry]
        self._compared: dict[bool, list[Comparable]] = {}
        """The recorded requests in comparable form, with and without the model's name."""
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._taken: set[int] = set()
        self._questions: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        """The entries with unused answers, by the shown question."""
        for entry in entries:
            if "question" in entry:
                entry["digest"] = entry["question"].pop("digest", None)
                self._questions[_key(entry["question"])].append(entry)

    @property
    def model(self) -> str:
        """The name of the first recorded model."""
        return str(self._exchanges[0]["model"]) if self._exchanges else "recorded"

    @property
    def reports_cost(self) -> bool:
        """Whether each complete answer reports its cost."""
        ends = (each["answer"].get("finished") for each in self._exchanges)
        return all("cost" in end.get("usage", {}) for end in ends if end is not None)

    @contextmanager
    def answer_for(self, request: Mapping[str, Any], model: str | None) -> Iterator[dict[str, Any]]:
        """Yield the recorded answer to a request; an answer that is not read to its end stays unused.

        Raises:
            NotRecorded: the recording has no answer.
        """
        asked = Comparable(self.scrub.value(request), model, self._ignore)
        with self._lock:
            recorded = self._recorded(named=model is not None)
            alike = self._by_key.get(asked.key, ())
            index = next((i for i in alike if i not in self._taken), alike[-1] if alike else None)
            is_first = index is not None and index not in self._taken
            if index is not None:
                self._taken.add(index)
        if index is None:
            raise self._not_recorded(asked, recorded)
        try:
            yield self._exchanges[index]["answer"]
        except (GeneratorExit, asyncio.CancelledError):
            if is_first:
                self._taken.discard(index)
            raise

    def _recorded(self, *, named: bool) -> list[Comparable]:
        if named not in self._compared:
            made = [
                Comparable(each["request"], each["model"] if named else None, self._ignore)
                for each in self._exchanges
            ]
            self._compared[named] = made
            for index, one in enumerate(made):
                self._by_key[one.key].append(index)
        return self._compared[named]

    def _not_recorded(self, asked: Comparable, recorded: list[Comparable]) -> NotRecorded:
        name = repr(self.path.name)
        if not recorded:
            return NotRecorded(f"The recording {name} has no requests. Record it again")
        index = max(range(len(recorded)), key=lambda i: (*recorded[i].likeness(asked), -i))
        number = self._exchanges[index]["number"]
        names = (f"recorded as number {number}", "asked now")
        diff = recorded[index].difference(asked, names=names)
        return NotRecorded(
            f"The recording {name} has no answer to this request. The nearest is number {number}:\n{diff}\nA recording "
            "can only be replayed with the same results and answers. Record it again with nbagent record NOTEBOOK or "
            "mode='record', or name the allowed differences with ignore=.",
            diff=diff,
        )

    def check(self) -> None:
        """Raise if entries were not used.

        Raises:
            UsageError: entries were not used; the message has their number and the first ones.
        """
        unused = self.unused()
        if unused:
            raise UsageError(f"{self.describe(unused)}\nRecord it again.")

    def unused(self) -> set[int]:
        """The numbers of unused entries, except answers with secrets, which cannot be used."""
        with self._lock:
            used = {id(self._exchanges[index]) for index in self._taken}
            waiting = {id(entry) for entries in self._questions.values() for entry in entries}
        return {
            number
            for number, entry in enumerate(self._entries, 1)
            if (id(entry) not in used if "request" in entry else id(entry) in waiting)
            and not ("question" in entry and _has_secret(entry))
        }

    def describe(self, unused: Collection[int]) -> str:
        """The number of ``unused`` entries, and a description of the first ones."""
        lines, counts = [], {"exchanges": 0, "human answers": 0}
        for number in sorted(unused):
            entry = self._entries[number - 1]
            is_exchange = "request" in entry
            counts["exchanges" if is_exchange else "human answers"] += 1
            words = exchange_in_words if is_exchange else answer_in_words
            lines.append(f"- {words(number, entry)}")
        of = {"exchanges": len(self._exchanges)}
        of["human answers"] = len(self._entries) - len(self._exchanges)
        numbers = [f"{count} of {of[kind]} {kind}" for kind, count in counts.items() if count]
        more = [f"- … and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
        head = f"Unused entries of {self.path.name!r}: {', '.join(numbers)}"
        return "\n".join([head, *lines[:MAX_LISTED], *more])

    # --- people's answers; see ``AnswerRecording``

    def answer_to(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """A person's recorded answer to this question; None if no recorded question matches, or the answer is secret.

        Raises:
            ModelConfigError: the recorded answer is invalid.
        """
        shown = self.scrub.value(question_json(interrupt))
        with self._lock:
            waiting = self._questions.get(_key(shown))
            if not waiting or waiting[0]["digest"] not in (None, interrupt.digest):
                return None
            if _has_secret(waiting[0]):
                return None  # a recording contains no secrets
            answer = waiting.popleft()["answered"]
        try:
            resolution: AnyResolution = TypeAdapter(Resolution).validate_python(answer)
        except ValidationError as error:
            raise ModelConfigError(
                f"{str(self.path)!r} has no answer to {interrupt.tool_name!r}: {error}"
            ) from error
        return resolution

    def answered(self, asked: Interrupted, given: Resolved) -> None:
        """Store nothing; a person's new answer replaces the recorded one, which is skipped."""
        if given.by in (*NO_PERSON, "recording"):
            return
        with self._lock:
            waiting = self._questions.get(_key(self.scrub.value(question_json(asked))))
            if waiting:
                waiting.popleft()

    def missing_hint(self) -> str:
        """A note for the error if an answer is missing."""
        return (
            f"The recording {self.path.name!r} has no more answers to this question, or the answer was a secret. "
            "Secrets are never stored"
        )


def _has_secret(entry: Mapping[str, Any]) -> bool:
    """Whether a recorded answer contains the mask of a secret, so that it cannot be used."""
    return MASK in canonical(entry["answered"])


def _key(question: Mapping[str, Any]) -> str:
    """The key of a question: equal for questions that show the same."""
    return canonical(masks_alike(question))
