"""A recording played again: the answer to a request that was recorded, and a person's to a question."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
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
from .exchange import question_json
from .recording import load
from .scrub import Change, Scrubber


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
        entries = load(path)
        self._exchanges = [entry for entry in entries if "request" in entry]
        self._compared: dict[bool, list[Comparable]] = {}
        """The recorded requests, with the name of the model and without."""
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._taken: set[int] = set()
        self._questions: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for entry in entries:
            if "question" in entry:
                digest = entry["question"].pop("digest", None)
                answer = {"digest": digest, "answered": entry["answered"]}
                self._questions[_key(entry["question"])].append(answer)

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
            return NotRecorded(f"the recording {name} has no request at all: record it anew")
        index = max(range(len(recorded)), key=lambda i: (*recorded[i].likeness(asked), -i))
        number = self._exchanges[index]["number"]
        names = (f"recorded as number {number}", "asked now")
        diff = recorded[index].difference(asked, names=names)
        return NotRecorded(
            f"the recording {name} has no answer to this request. The nearest is number {number}:\n{diff}\n"
            "A recording goes on only from the results and answers that it was made with. Record it anew, with "
            "nbagent record NOTEBOOK or mode='record', or name what may differ with ignore=.",
            diff=diff,
        )

    def check(self) -> None:
        """Complain about what was never asked for.

        Raises:
            UsageError: naming how much, and the first of it.
        """
        left = [each["number"] for i, each in enumerate(self._exchanges) if i not in self._taken]
        if left:
            raise UsageError(
                f"{len(left)} of {len(self._exchanges)} exchanges of {self.path.name!r} were never asked for, "
                f"the first is number {left[0]}: record it anew"
            )

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
            if MASK in canonical(waiting[0]["answered"]):
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
        """Keep nothing: it is all there."""

    def told(self) -> str:
        """What is to be known where an answer is missing."""
        return (
            f"the recording {self.path.name!r} has no (further) answer to what is shown, or one with a secret, "
            "which is not kept"
        )


def _key(question: Mapping[str, Any]) -> str:
    """What is the same of two questions that show the same."""
    return canonical(masks_alike(question))
