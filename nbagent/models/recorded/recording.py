"""The file of a recording: what was asked and answered, in its order, readable and fit for git."""

from __future__ import annotations

import hashlib
import json
import logging
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from nbagent.core.base.controls import json_without_controls
from nbagent.core.base.errors import InvalidAnswer, ModelConfigError, ModelError
from nbagent.core.base.events import Interrupted, Resolved
from nbagent.core.base.foreign import MAX_FILE_PARTS, counted, parts_of, read_by
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import Json, canonical, written_out
from nbagent.core.base.private import write_private
from nbagent.core.base.secrets import MASK
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.scripted_answers import Answers, AnswerSource

from .compare import SETUP, masks_alike
from .exchange import question_json
from .scrub import Scrubber

logger = logging.getLogger("nbagent")

FORMAT = 1
"""Of the file; a newer one is refused."""
EMPTY: dict[str, Any] = {"instructions": None, "tools": [], "hosted": [], "output_schema": None}
"""What a request has that says nothing of it."""
WIDTH = 100
"""Characters of a line that has several values."""
HEAD = 1_000
"""Values that a file has beside its entries, or fewer."""
MAX_SIZE = 50_000_000
"""Characters of a recording."""
MAX_WHOLE = 1_000_000_000
"""Characters of all its requests, each whole: a file has of each what is new in it."""
NO_PERSON = ("code", "answers=", "expiry", "external")
"""Who settles questions and is no person: it does so in a replay too."""


class Recording:
    """A recording under way: each whole exchange, and each answer of a person, is in the file at once.

    Args:
        path: the file, begun anew by the first exchange.
        scrub: cuts secrets from what is kept.
        answers: what to answer where nobody is there, as ``answers=`` has it.
    """

    def __init__(self, path: Path, scrub: Scrubber, answers: Answers = None) -> None:
        self.path = path
        self.scrub = scrub
        self._answers = AnswerSource(answers)
        self._lock = threading.Lock()
        self._entries: list[str] = []
        """As they are written."""
        self._size = self._parts = 0
        self._setups: dict[int, dict[str, str]] = {}
        """By number of an exchange: what it has beside messages, as canonical JSON."""
        self._known: dict[str, tuple[int, int]] = {}
        """By digest of the first messages of a request: in which exchange they stand, and how many they are."""
        self._is_begun = False
        """Whether there is an answer, of a model or a person: failures alone, as with a wrong key, make no recording."""
        self.failed: list[str] = []
        """What the models' errors said."""
        self._settled: set[str] = set()
        """The ids of questions whose answers are kept: several handles on a run tell of them."""
        self._written: tuple[int, int, int] | None = None

    def exchanged(self, model: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep one exchange.

        Args:
            model: the model's name.
            request: as ``request_json`` gives it.
            answer: as ``Answer`` gives it.

        Raises:
            ModelError: the file cannot be written, or is another's by now.
        """
        request, answer = self.scrub.value(request), self.scrub.value(answer)
        with self._lock:
            number = len(self._entries) + 1
            asked = self._difference(number, request)
            self._is_begun |= "finished" in answer
            if "failed" in answer:
                self.failed.append(answer["failed"]["message"])
            self._add({"number": number, "model": model, "request": asked, "answer": answer})

    def answered(self, asked: Interrupted, given: Resolved) -> None:
        """Keep what a person answered; see ``KeptAnswers``.

        Where the file cannot be written that is logged, and the next request to the model fails.
        """
        if given.by in NO_PERSON:
            return
        resolution = given.resolution.model_dump(mode="json", exclude_none=True)
        resolution.pop("interrupt", None)
        question = masks_alike(question_json(asked))
        shown = self.scrub.value(question)
        if shown == question and MASK not in canonical(question):
            shown["digest"] = asked.digest
        with self._lock:
            if given.id in self._settled:
                return
            self._settled.add(given.id)
            self._is_begun = True
            number = len(self._entries) + 1
            told = self.scrub.value(masks_alike(resolution))
            try:
                self._add({"number": number, "question": shown, "answered": told})
            except ModelError as error:
                logger.error("an answer could not be recorded: %s", error)  # noqa: TRY400 - said in it

    def answer_to(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """What to answer where nobody is there: what the recording is made with."""
        return self._answers.next(interrupt)

    def missing_hint(self) -> str:
        """What is to be known of its answers where one is missing."""
        return self._answers.missing_hint() or (
            f"{self.path.name!r} is being recorded. Answer in the form of a notebook, or use nbagent record --answers "
            "FILE"
        )

    @property
    def has_its_file(self) -> bool:
        """Whether the file is as it was last written, or was not begun yet."""
        return self._written is None or self._written == _stamp(self.path)

    def _difference(self, number: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """A request by what is new to an earlier one, so that a file grows with what was said."""
        digest, digests = hashlib.sha256(), []
        for message in request["messages"]:
            digest.update(canonical(message).encode(errors="backslashreplace") + b"\n")
            digests.append(digest.hexdigest())
        setup = {name: canonical(request[name]) for name in SETUP}
        known = next((self._known[d] for d in reversed(digests) if d in self._known), None)
        if known is None and self._setups:
            alike = [n for n, other in self._setups.items() if other == setup]
            known = (alike[-1] if alike else max(self._setups), 0)
        self._setups[number] = setup
        self._known |= {d: (number, count) for count, d in enumerate(digests, 1)}
        if known is None:
            return _without_empty(request)
        like, kept = known
        before = self._setups[like]
        told: dict[str, Any] = {"same_as": {"number": like, "messages": kept}}
        told |= {name: request[name] for name in SETUP if before[name] != setup[name]}
        return {**told, "messages": request["messages"][kept:]}

    def _add(self, entry: Mapping[str, Any]) -> None:
        text = json_without_controls("\n".join(_lines(written_out(entry), indent="  ")))
        self._size += len(text)
        self._parts += parts_of(text, MAX_FILE_PARTS)
        if self._size > MAX_SIZE or self._parts > MAX_FILE_PARTS - HEAD:
            raise ModelError(
                f"The recording {str(self.path)!r} would have more than {MAX_SIZE:,} characters or {MAX_FILE_PARTS:,} "
                "values. Record a shorter session"
            )
        self._entries.append(text)
        if self._is_begun:
            self._write()

    def _write(self) -> None:
        cut = {name: count for name, count in sorted(self.scrub.counts.items()) if count}
        head = (
            f'{{\n "nbagent_recording": {FORMAT},\n "scrubbed": {json.dumps(cut)},\n "session": [\n'
        )
        text = head + ",\n".join(self._entries) + "\n ]\n}\n"
        try:
            if not self.has_its_file:
                raise ModelError(
                    f"{str(self.path)!r} was changed after this process last wrote it. Use a separate file for each recording"
                )
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_private(self.path, text, keep_rights=True)
            self._written = _stamp(self.path)
        except OSError as error:
            raise ModelError(
                f"The recording {str(self.path)!r} cannot be written: {error}"
            ) from error


def _lines(value: Json, *, indent: str, before: str = "", after: str = "") -> Iterator[str]:
    """JSON in lines: what fits into one stands in one, all else has a line for each of its parts.

    Raises:
        TypeError, ValueError: it is no JSON.
    """
    short = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(indent) + len(before) + len(short) <= WIDTH or not value or isinstance(value, str):
        yield f"{indent}{before}{short}{after}"
        return
    is_object = isinstance(value, Mapping)
    parts = (
        [(f"{json.dumps(key, ensure_ascii=False)}: ", each) for key, each in value.items()]
        if is_object
        else [("", each) for each in value]
    )
    yield f"{indent}{before}{'{' if is_object else '['}"
    for number, (name, each) in enumerate(parts, 1):
        comma = "" if number == len(parts) else ","
        yield from _lines(each, indent=f"{indent} ", before=name, after=comma)
    yield f"{indent}{'}' if is_object else ']'}{after}"


def _without_empty(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what it does not have."""
    return {name: value for name, value in request.items() if value or name == "messages"}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes where a file is written anew; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


_under_way: WeakValueDictionary[Path, Recording] = WeakValueDictionary()
"""The recordings of this process, by file."""


def recording_of(path: Path, scrub: Scrubber, answers: Answers, *, anew: bool) -> Recording:
    """The recording under way in a file, which scrubs this too, or a new one; ``anew`` begins a new one in any case."""
    found = None if anew else _under_way.get(path)
    if found is None or not found.has_its_file:
        found = _under_way[path] = Recording(path, scrub, answers)
    else:
        found.scrub.join(scrub)
    return found


def load(path: Path) -> list[dict[str, Any]]:
    """The entries of a recording, requests whole.

    Raises:
        ModelConfigError: there is none, it is damaged, or a newer nbagent wrote it.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe is waited for, a device has no end
            raise ModelConfigError(
                f"{str(path)!r} is not a regular file, so it cannot be a recording"
            )
        if status.st_size > 4 * MAX_SIZE:
            raise ModelConfigError(f"{str(path)!r} is too large for a recording")
        found = read_by(json.loads, counted(path.read_text(encoding="utf-8"), MAX_FILE_PARTS))
    except FileNotFoundError:
        raise ModelConfigError(
            f"The recording {str(path)!r} does not exist. Record it where you have a key, with nbagent record NOTEBOOK "
            f"or nb.RecordedModel({path.name!r}, 'a model', mode='record')"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelConfigError(f"{str(path)!r} cannot be read as a recording: {error}") from error
    version = found.get("nbagent_recording") if isinstance(found, dict) else None
    if not isinstance(version, int):
        raise ModelConfigError(
            f"{str(path)!r} is not a recording, because it has no 'nbagent_recording'"
        )
    if version > FORMAT:
        raise ModelConfigError(
            f"{str(path)!r} was recorded by a newer nbagent: its format is {version}, and this one reads formats up to "
            f"{FORMAT}. Upgrade with: pip install -U jupyter-nbagent"
        )
    whole: dict[int, dict[str, Any]] = {}
    entries: list[dict[str, Any]] = []
    sizes: dict[int, int] = {}
    total = 0
    try:
        for entry in found["session"]:
            entries.append(_whole(entry, whole))
            if "request" in entry:
                sizes[entry["number"]] = _size(entry["request"], sizes)
                total += sizes[entry["number"]]
            if total > MAX_WHOLE:
                raise ModelConfigError(
                    f"The requests in {str(path)!r} have more than {MAX_WHOLE:,} characters in total. Record a shorter session"
                )
    except (KeyError, TypeError, AttributeError, InvalidAnswer) as error:
        raise ModelConfigError(
            f"{str(path)!r} is damaged: an entry of its session has no {error}"
        ) from error
    return entries


def _size(asked: Mapping[str, Any], sizes: Mapping[int, int]) -> int:
    """Characters of a request when it is whole, or more: what it shares with another counts as all of that."""
    shared = sizes[asked["same_as"]["number"]] if "same_as" in asked else 0
    return shared + len(json.dumps(asked))


def _whole(entry: Mapping[str, Any], whole: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """An entry with what stands in earlier ones."""
    if "request" not in entry:
        return {"question": dict(entry["question"]), "answered": dict(entry["answered"])}
    asked = dict(entry["request"])
    like = asked.pop("same_as", None)
    if like is not None:
        before = whole[like["number"]]
        asked = {
            **before,
            **asked,
            "messages": before["messages"][: like["messages"]] + asked["messages"],
        }
    setup = {name: asked.get(name) or EMPTY[name] for name in SETUP}
    whole[entry["number"]] = {**setup, "messages": asked["messages"]}
    answer = entry["answer"]
    if not isinstance(answer["said"], list):
        raise TypeError("list of what was said")
    return {
        "number": entry["number"],
        "model": entry["model"],
        "request": whole[entry["number"]],
        "answer": answer,
    }
