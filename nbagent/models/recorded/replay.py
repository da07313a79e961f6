"""A recording played again: the answer to a request that was recorded, and a person's to a question."""

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

MAX_TOLD = 5
"""Entries that were not used of which an error tells in words."""


class Replay:
    """What one recording answers.

    Equal requests get their answers in the order in which they were recorded, and the last one again and
    again, as a cell that is run again asks the same. Each answer of a person is given once.

    Args:
        path: the recording.
        scrub: as in the recording, so that both sides agree.
        ignore: what may differ.

    Raises:
        ModelConfigError: there is no such recording, or it cannot be read.
    """

    def __init__(self, path: Path, scrub: Scrubber, ignore: tuple[Change, ...]) -> None:
        self.path = path
        self.scrub = scrub
        self._ignore = ignore
        self._lock = threading.Lock()
        self._entries = entries = load(path)
        self._exchanges = [entry for entry in entries if "request" in entry]
        self._compared: dict[bool, list[Comparable]] = {}
        """The recorded requests, with the name of the model and without."""
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._taken: set[int] = set()
        self._questions: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        """The entries whose answers nobody has taken yet, by what was shown."""
        for entry in entries:
            if "question" in entry:
                entry["digest"] = entry["question"].pop("digest", None)
                self._questions[_key(entry["question"])].append(entry)

    @property
    def model(self) -> str:
        """The name of the first model that was asked."""
        return str(self._exchanges[0]["model"]) if self._exchanges else "recorded"

    @property
    def tells_cost(self) -> bool:
        """Whether each whole answer says what it cost."""
        ends = (each["answer"].get("finished") for each in self._exchanges)
        return all("cost" in end.get("usage", {}) for end in ends if end is not None)

    @contextmanager
    def taken(self, request: Mapping[str, Any], model: str | None) -> Iterator[dict[str, Any]]:
        """The recorded answer to a request; one that is not read to its end is there for the next.

        Args:
            request: as ``request_json`` gives it.
            model: the model's name; None for any.

        Raises:
            NotRecorded: it has none.
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
        """Complain about what was never asked for.

        Raises:
            UsageError: naming how much, and the first of it.
        """
        left = self.left()
        if left:
            raise UsageError(f"{self.told_of(left)}\nRecord it again.")

    def left(self) -> set[int]:
        """The numbers of the entries that nothing has used; an answer with a secret cannot be used."""
        with self._lock:
            used = {id(self._exchanges[index]) for index in self._taken}
            waiting = {id(entry) for entries in self._questions.values() for entry in entries}
        return {
            number
            for number, entry in enumerate(self._entries, 1)
            if (id(entry) not in used if "request" in entry else id(entry) in waiting)
            and not ("question" in entry and _has_secret(entry))
        }

    def told_of(self, left: Collection[int]) -> str:
        """How much of the recording these entries are, and the first of them in words."""
        lines, counts = [], {"exchanges": 0, "answers of people": 0}
        for number in sorted(left):
            entry = self._entries[number - 1]
            is_exchange = "request" in entry
            counts["exchanges" if is_exchange else "answers of people"] += 1
            words = exchange_in_words if is_exchange else answer_in_words
            lines.append(f"- {words(number, entry)}")
        of = {"exchanges": len(self._exchanges)}
        of["answers of people"] = len(self._entries) - len(self._exchanges)
        told = [f"{count} of {of[what]} {what}" for what, count in counts.items() if count]
        more = [f"- … and {len(lines) - MAX_TOLD} more"] if len(lines) > MAX_TOLD else []
        head = f"Not used of {self.path.name!r}: {' and '.join(told)}"
        return "\n".join([head, *lines[:MAX_TOLD], *more])

    # --- what people answered; see ``KeptAnswers``

    def answer_to(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """What a person answered to this very question, where it was shown alike.

        Raises:
            ModelConfigError: the recording has what is no answer.
        """
        shown = self.scrub.value(question_json(interrupt))
        with self._lock:
            waiting = self._questions.get(_key(shown))
            if not waiting or waiting[0]["digest"] not in (None, interrupt.digest):
                return None
            if _has_secret(waiting[0]):
                return None  # a secret stands in no recording
            answer = waiting.popleft()["answered"]
        try:
            resolution: AnyResolution = TypeAdapter(Resolution).validate_python(answer)
        except ValidationError as error:
            raise ModelConfigError(
                f"{str(self.path)!r} has no answer to {interrupt.tool_name!r}: {error}"
            ) from error
        return resolution

    def answered(self, asked: Interrupted, given: Resolved) -> None:
        """Keep nothing: it is all there. What a person answers now stands in the place of the recorded answer."""
        if given.by in (*NO_PERSON, "recording"):
            return
        with self._lock:
            waiting = self._questions.get(_key(self.scrub.value(question_json(asked))))
            if waiting:
                waiting.popleft()

    def missing_hint(self) -> str:
        """What is to be known where an answer is missing."""
        return (
            f"The recording {self.path.name!r} has no (further) answer to this question, or the answer was a secret, "
            "which is never stored"
        )


def _has_secret(entry: Mapping[str, Any]) -> bool:
    """Whether a recorded answer has the mask of a secret, and so nothing that could be given."""
    return MASK in canonical(entry["answered"])


def _key(question: Mapping[str, Any]) -> str:
    """What is the same of two questions that show the same."""
    return canonical(masks_alike(question))
