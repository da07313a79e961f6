"""The file of a recording: requests and answers in order, readable and suitable for git."""

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
from nbagent.core.base.incoming_json import MAX_FILE_PARTS, parts_of, read_by, within_parts
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import Json, canonical, with_escaped_surrogates
from nbagent.core.base.private import write_private
from nbagent.core.base.secrets import MASK
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.scripted_answers import Answers, AnswerSource

from .compare import SETUP, masks_alike
from .exchange import question_json
from .scrub import Scrubber

logger = logging.getLogger("nbagent")

FORMAT = 1
"""The version of the file's format; newer ones are rejected."""
EMPTY: dict[str, Any] = {"instructions": None, "tools": [], "hosted": [], "output_schema": None}
"""The empty fields of a request, which the file omits."""
WIDTH = 100
"""The maximum length of a line with several values."""
HEAD = 1_000
"""The maximum number of values in a file besides its entries."""
MAX_SIZE = 50_000_000
"""The maximum characters of a recording."""
MAX_REQUESTS = 1_000_000_000
"""The maximum characters of a recording's complete requests; the file stores only the new part of each request."""
NO_PERSON = ("code", "answers=", "expiry", "external")
"""The sources of answers other than persons; not recorded, because these sources also answer in a replay."""


class Recording:
    """A running recording: each complete exchange, and each answer of a person, is written at once."""

    def __init__(self, path: Path, scrub: Scrubber, answers: Answers = None) -> None:
        self.path = path
        self.scrub = scrub
        self._answers = AnswerSource(answers)
        self._lock = threading.RLock()
        self._entries: list[str] = []
        """The entries as JSON, in order."""
        self._size = self._parts = 0
        self._setups: dict[int, dict[str, str]] = {}
        """The parts of each request other than messages, as canonical JSON, by the exchange's number."""
        self._known: dict[str, tuple[int, int]] = {}
        """For the first n messages of each request, by their digest: the exchange's number, and n."""
        self._has_answer = False
        """Whether there is an answer of a model or a person; failures alone, such as a wrong key, write no file."""
        self.failed: list[str] = []
        """The messages of the models' errors."""
        self._settled: set[str] = set()
        """The ids of questions with stored answers, because several handles of a run report them."""
        self._written: tuple[int, int, int] | None = None

    def exchanged(self, model: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Write one exchange, from ``request_json`` and ``RecordedAnswer``.

        Raises:
            ModelError: the file cannot be written, or other code has changed it.
        """
        request, answer = self.scrub.value(request), self.scrub.value(answer)
        with self._lock:
            number = len(self._entries) + 1
            asked = self._difference(number, request)
            self._has_answer |= "finished" in answer
            if "failed" in answer:
                self.failed.append(answer["failed"]["message"])
            self._add({"number": number, "model": model, "request": asked, "answer": answer})

    def answered(self, asked: Interrupted, given: Resolved) -> None:
        """Write a person's answer; see ``AnswerRecording``.

        If the file cannot be written, the error is logged, and the next request to the model fails.
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
            self._has_answer = True
            number = len(self._entries) + 1
            answer = self.scrub.value(masks_alike(resolution))
            try:
                self._add({"number": number, "question": shown, "answered": answer})
            except ModelError as error:
                logger.error("an answer could not be recorded: %s", error)  # noqa: TRY400 - the message contains it

    def answer_to(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """The answer without a person, from the recording's ``answers``."""
        return self._answers.next(interrupt)

    def missing_hint(self) -> str:
        """A note for the error about a missing answer."""
        return self._answers.missing_hint() or (
            f"{self.path.name!r} is being recorded. Answer in the form of a notebook, or use nbagent record --answers "
            "FILE"
        )

    @property
    def is_file_unchanged(self) -> bool:
        """Whether the file has not changed since this recording wrote it; True before the first write."""
        return self._written is None or self._written == _stamp(self.path)

    def check_file(self) -> None:
        """Raise if the file has changed; before a request, because its answer could not be written.

        Raises:
            ModelError: other code has changed or deleted the file.
        """
        with self._lock:
            if not self.is_file_unchanged:
                raise ModelError(
                    f"{str(self.path)!r} was changed or deleted after this process last wrote it. Use a separate file for "
                    "each recording. To start this one again, create the model again with mode='record'"
                )

    def _difference(self, number: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """The new part of a request compared to an earlier one, so that the file stays small."""
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
            return {name: value for name, value in request.items() if value or name == "messages"}
        like, kept = known
        before = self._setups[like]
        difference: dict[str, Any] = {"same_as": {"number": like, "messages": kept}}
        difference |= {name: request[name] for name in SETUP if before[name] != setup[name]}
        return {**difference, "messages": request["messages"][kept:]}

    def _add(self, entry: Mapping[str, Any]) -> None:
        text = json_without_controls("\n".join(_lines(with_escaped_surrogates(entry), indent="  ")))
        self._size += len(text)
        self._parts += parts_of(text, MAX_FILE_PARTS)
        if self._size > MAX_SIZE or self._parts > MAX_FILE_PARTS - HEAD:
            raise ModelError(
                f"The recording {str(self.path)!r} would have more than {MAX_SIZE:,} characters or {MAX_FILE_PARTS:,} "
                "values. Record a shorter session"
            )
        self._entries.append(text)
        if self._has_answer:
            self._write()

    def _write(self) -> None:
        cut = {name: count for name, count in sorted(self.scrub.counts.items()) if count}
        head = (
            f'{{\n "nbagent_recording": {FORMAT},\n "scrubbed": {json.dumps(cut)},\n "session": [\n'
        )
        text = head + ",\n".join(self._entries) + "\n ]\n}\n"
        self.check_file()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_private(self.path, text, keep_rights=True)
            self._written = _stamp(self.path)
        except OSError as error:
            raise ModelError(
                f"The recording {str(self.path)!r} cannot be written: {error}"
            ) from error


def _lines(value: Json, *, indent: str, before: str = "", after: str = "") -> Iterator[str]:
    """JSON in lines: a value that fits is in one line, any other has a line for each of its parts.

    Raises:
        TypeError, ValueError: the value is not JSON.
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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """The identity, time and size of a file, to detect a change; None if there is no such file here."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


_under_way: WeakValueDictionary[Path, Recording] = WeakValueDictionary()
"""The recordings of this process, by file."""


def recording_of(path: Path, scrub: Scrubber, answers: Answers, *, always_new: bool) -> Recording:
    """The running recording of a file, or a new recording; always a new recording if ``always_new``.

    A running recording also removes the secrets of ``scrub`` from now on.
    """
    found = None if always_new else _under_way.get(path)
    if found is None or not found.is_file_unchanged:
        found = _under_way[path] = Recording(path, scrub, answers)
    else:
        found.scrub.join(scrub)
    return found


def load(path: Path) -> list[dict[str, Any]]:
    """The entries of a recording, with complete requests.

    Raises:
        ModelConfigError: the recording does not exist, is damaged, or was written by a newer nbagent.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would block, and a device has no end
            raise ModelConfigError(
                f"{str(path)!r} is not a regular file, so it cannot be a recording"
            )
        if status.st_size > 4 * MAX_SIZE:
            raise ModelConfigError(f"{str(path)!r} is too large for a recording")
        found = read_by(json.loads, within_parts(path.read_text(encoding="utf-8"), MAX_FILE_PARTS))
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
    requests: dict[int, dict[str, Any]] = {}
    entries: list[dict[str, Any]] = []
    sizes: dict[int, int] = {}
    total = 0
    try:
        for entry in found["session"]:
            entries.append(_completed(entry, requests))
            if "request" in entry:
                sizes[entry["number"]] = _size(entry["request"], sizes)
                total += sizes[entry["number"]]
            if total > MAX_REQUESTS:
                raise ModelConfigError(
                    f"The requests in {str(path)!r} have more than {MAX_REQUESTS:,} characters in total. Record a shorter session"
                )
    except (KeyError, TypeError, ValueError, AttributeError, InvalidAnswer) as error:
        raise ModelConfigError(
            f"{str(path)!r} is damaged: an entry of its session cannot be read ({type(error).__name__}: {error})"
        ) from error
    return entries


def _size(asked: Mapping[str, Any], sizes: Mapping[int, int]) -> int:
    """An upper bound of the characters of a complete request: a shared part counts as the whole other request."""
    shared = sizes[asked["same_as"]["number"]] if "same_as" in asked else 0
    return shared + len(json.dumps(asked))


def _completed(entry: Mapping[str, Any], requests: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """An entry with its complete request, which may share parts of earlier requests."""
    if "request" not in entry:
        return {"question": dict(entry["question"]), "answered": dict(entry["answered"])}
    asked = dict(entry["request"])
    like = asked.pop("same_as", None)
    if like is not None:
        before = requests[like["number"]]
        asked = {
            **before,
            **asked,
            "messages": before["messages"][: like["messages"]] + asked["messages"],
        }
    setup = {name: asked.get(name) or EMPTY[name] for name in SETUP}
    requests[entry["number"]] = {**setup, "messages": asked["messages"]}
    answer = entry["answer"]
    if not isinstance(answer["said"], list):
        raise TypeError("list of what was said")
    return {
        "number": entry["number"],
        "model": entry["model"],
        "request": requests[entry["number"]],
        "answer": answer,
    }
