"""A model that records another model's answers, and replays them without a key or a network.

    agent = nb.Agent(nb.RecordedModel("session.json", "gpt-5.1"))

If the file does not exist, requests go to the model, and the file is written. If the file exists, no model
is called. A request that was not recorded then raises an error with the difference.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Literal, Self, get_args

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import ModelConfigError, UsageError
from nbagent.core.base.model import Finished, Hosted, Model, ModelDelta, Request
from nbagent.core.hooks import hooks
from nbagent.core.run.host import current_host

from .environment import RECORD, REPLAY, count_as_of_process, given_answers, process_recording
from .exchange import RecordedAnswer, deltas, end_of, in_words, request_json
from .recording import Recording, recording_of
from .replay import Replay
from .scrub import Change, Scrubber, changes

Mode = Literal["auto", "record", "replay"]

PACE = 0.03
"""Seconds between words if a person watches, about as fast as a hosted model."""
LONGEST = 3.0
"""The maximum seconds for the replay of one text."""


class RecordedModel:
    """A model that is recorded into a file, or replayed from it.

    Args:
        path: the file, readable JSON: requests, the model's answers, people's answers.
        model: the model to record, or its name; a replay neither needs nor calls a model.
        mode: ``"record"`` calls the model and replaces the file; ``"replay"`` uses only the file;
            ``"auto"`` replays if the file exists when this object is created, and otherwise records. Under
            ``nbagent record``, ``"auto"`` records; under ``nbagent replay``, it replays.
        ignore: allowed differences between a request and the recorded one: regular expressions, or functions
            that return a text without them.
        scrub: texts to remove from the file, in the form of ``ignore``. Keys in the environment, keys of
            the model's client and texts that look like keys are always removed. A replay needs the same ``scrub``.
        pace: seconds between the words of a replay; by default 0.03 if a person watches, and 0
            otherwise.

    As a context manager, the model calls ``check()`` at the end.

    Raises:
        ModelConfigError: there is nothing to replay, or no model to record.
        UsageError: an argument is invalid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: str | Model | None = None,
        *,
        mode: Mode = "auto",
        ignore: Change | Iterable[Change] = (),
        scrub: Change | Iterable[Change] = (),
        pace: float | None = None,
        _tape: Recording | Replay | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"mode must be 'auto', 'record' or 'replay', got {mode!r:.80}")
        if pace is not None and amount(pace) is None:
            raise UsageError(f"pace must be a number of seconds, got {pace!r:.80}")
        if model is not None and not isinstance(model, str) and not hasattr(model, "stream"):
            raise UsageError(
                f"A model must be a name or an object with a stream method, got {model!r:.80}"
            )
        self.path = Path(path).absolute()
        self.mode = _mode(mode, self.path)
        """The current mode: ``"record"`` or ``"replay"``."""
        self._given = self._model = model
        self._pace = pace
        scrubber = Scrubber(
            changes("scrub", scrub), lambda: getattr(self._model, "without_credentials", None)
        )
        if _tape is None:
            _tape = self._create_tape(scrubber, mode, changes("ignore", ignore))
        else:
            _tape.scrub.join(scrubber)
        self._tape = _tape

    def _create_tape(
        self, scrubber: Scrubber, mode: Mode, ignore: tuple[Change, ...]
    ) -> Recording | Replay:
        if self.mode == "replay":
            replay = Replay(self.path, scrubber, ignore)
            if mode == "auto":
                count_as_of_process(replay)
            return replay
        if self._model is None:
            raise ModelConfigError(
                f"To record {str(self.path)!r}, name the model, as in nb.RecordedModel({self.path.name!r}, 'gpt-5.1')"
            )
        return recording_of(self.path, scrubber, given_answers(), always_new=mode == "record")

    @property
    def name(self) -> str:
        """The model's name; in a replay without ``model``, the name of the first recorded model."""
        if self._given is None:
            return self._tape.model if isinstance(self._tape, Replay) else ""
        return self._given if isinstance(self._given, str) else self._given.name

    @property
    def people(self) -> Recording | Replay:
        """The recording or replay of people's answers."""
        return self._tape

    def __repr__(self) -> str:
        return f"RecordedModel({self.path.name!r}, {self.name!r}, mode={self.mode!r})"

    def check_hosted(self, tool: Hosted) -> None:
        """Check that the recorded model has this hosted tool; a replay checks the recording at each request.

        Raises:
            UsageError: the recorded model does not support the tool.
        """
        if isinstance(self._tape, Replay):
            return
        model = self._resolved()
        check = getattr(model, "check_hosted", None)
        if check is None:
            raise UsageError(
                f"{tool.name!r} is a hosted tool, which the model {model.name!r} does not support"
            )
        check(tool)

    @property
    def reports_cost(self) -> bool:
        """Whether each answer reports its cost; a replay checks the answers in the recording."""
        if isinstance(self._tape, Replay):
            return self._tape.reports_cost
        return getattr(self._resolved(), "reports_cost", False) is True

    def check(self) -> None:
        """Raise if entries of a replayed recording were not used; a running recording has no unused entries.

        Raises:
            UsageError: entries were not used; the message has their number and the first ones.
        """
        if isinstance(self._tape, Replay):
            self._tape.check()

    def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request, from the model or from the file.

        Raises:
            NotRecorded: the recording has no answer to this request.
            ModelError: the model failed, now or in the recording; or the file cannot be written.
            ModelConfigError: the model is misconfigured.
        """
        tape = self._tape
        if isinstance(tape, Recording):
            return self._recorded(tape, request)
        return self._replayed(tape, request)

    async def _recorded(
        self, tape: Recording, request: Request
    ) -> AsyncGenerator[ModelDelta, None]:
        tape.check_file()
        model, asked, answer = self._resolved(), request_json(request), RecordedAnswer(request)
        stream: Any = model.stream(request)
        try:
            async with aclosing(stream) if hasattr(stream, "aclose") else nullcontext():
                async for delta in stream:
                    answer.add(delta)
                    if isinstance(delta, Finished):  # before the yield: the reader may stop there
                        tape.exchanged(self.name, asked, answer.finished(delta))
                    yield delta
        except Exception as error:
            failed = answer.failed(error)
            if failed is not None:
                tape.exchanged(self.name, asked, failed)
            raise

    async def _replayed(self, tape: Replay, request: Request) -> AsyncGenerator[ModelDelta, None]:
        name = None if self._given is None else self.name
        with tape.answer_for(request_json(request), name) as answer:
            pace = self._pace
            if pace is None:
                pace = PACE if request.stream and current_host().attended() else 0.0
            for delta in deltas(answer):
                words = list(in_words(delta)) if pace else [delta]
                for word in words:
                    if pace:
                        await asyncio.sleep(min(pace, LONGEST / len(words)))
                    yield word
        end = end_of(answer)
        if isinstance(end, Exception):
            end.add_note(
                f"This was recorded in {tape.path.name!r}. To record it again, use mode='record'."
            )
            raise end
        yield end

    def _resolved(self) -> Model:
        """The model to call, created on first use."""
        if isinstance(self._model, str):
            named: Model = hooks.model_named(self._model)
            self._model = named
        assert self._model is not None  # checked at creation
        return self._model

    async def aclose(self) -> None:
        """Close the recorded model."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self.check()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        await self.aclose()
        self.__exit__(kind)


def _mode(mode: Mode, path: Path) -> Literal["record", "replay"]:
    """The current mode, which for ``"auto"`` depends on the environment and the file."""
    if mode != "auto":
        return mode
    if os.environ.get(RECORD):
        return "record"
    return "replay" if os.environ.get(REPLAY) or path.exists() else "record"


def recorded_or_same(model: str | Model) -> str | Model:
    """The model for an agent: the model itself, or a ``RecordedModel`` if this process records or replays.

    Raises:
        ModelConfigError: as ``process_recording``.
    """
    if isinstance(model, RecordedModel):
        return model
    tape = process_recording()
    if tape is None:
        return model
    mode: Mode = "record" if isinstance(tape, Recording) else "replay"
    return RecordedModel(tape.path, model, mode=mode, _tape=tape)


def answer_recording_of(model: Any) -> Recording | Replay | None:
    """The recording or replay of people's answers in runs of this model; None if there is none.

    Raises:
        ModelConfigError: as ``process_recording``.
    """
    return model.people if isinstance(model, RecordedModel) else process_recording(if_exists=True)
