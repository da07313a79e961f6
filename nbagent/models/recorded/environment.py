"""What the environment says of recording: all models of this process, into or from one file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.run.scripted_answers import Answers

from .recording import Recording
from .replay import Replay
from .scrub import Scrubber

RECORD, REPLAY = "NBAGENT_RECORD", "NBAGENT_REPLAY"
"""The file that all models of this process are recorded into, or replayed from."""
ANSWERS = "NBAGENT_ANSWERS"
"""A JSON file with what to answer while a recording is made and nobody is there, as ``answers=`` has it."""

_shared: dict[tuple[str, Path], Recording | Replay] = {}
"""By what it is and its file: the recording of this process, or its replay."""


def of_process(*, if_there: bool = False) -> Recording | Replay | None:
    """What all models of this process are recorded into, or replayed from; None where nothing says so.

    Args:
        if_there: whether a recording to replay may be missing, as where a notebook has its own.

    Raises:
        ModelConfigError: the environment says both; or a file cannot be read.
    """
    record, replay = os.environ.get(RECORD), os.environ.get(REPLAY)
    if record and replay:
        raise ModelConfigError(f"{RECORD} and {REPLAY} are both set. Unset one of them")
    told = record or replay
    if not told:
        return None
    if if_there and not record and not Path(told).exists():
        return None
    key = (RECORD if record else REPLAY, Path(told).absolute())
    if key not in _shared:
        scrubber = Scrubber()
        _shared[key] = (
            Recording(key[1], scrubber, given_answers()) if record else Replay(key[1], scrubber, ())
        )
    return _shared[key]


_own: list[Replay] = []
"""The recordings of the code's own that are replayed because the environment says so."""


def count_as_of_process(replay: Replay) -> None:
    """Count a recording of the code's own among those that this process replays."""
    if os.environ.get(REPLAY):
        _own.append(replay)


def unused() -> list[str]:
    """What this process, which replays, has not asked for so far: a text for each recording.

    Several replays of one file count together.

    Raises:
        ModelConfigError: as ``of_process``.
    """
    shared = of_process(if_there=True)
    by_path: dict[Path, list[Replay]] = {}
    for replay in (*_own, *([shared] if isinstance(shared, Replay) else [])):
        by_path.setdefault(replay.path, []).append(replay)
    left = {path: set.intersection(*(r.left() for r in same)) for path, same in by_path.items()}
    return [same[0].told_of(left[path]) for path, same in by_path.items() if left[path]]


def given_answers() -> Answers:
    """The answers that a recording is made with.

    Raises:
        ModelConfigError: they cannot be read, or are neither a list nor an object.
    """
    told = os.environ.get(ANSWERS)
    if not told:
        return None
    try:
        found: Answers = json.loads(Path(told).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelConfigError(f"{ANSWERS}={told!r} is not valid JSON: {error}") from error
    if not isinstance(found, list | dict):
        raise ModelConfigError(
            f"{ANSWERS}={told!r} must be a list in the order of the questions, or an object by tool name"
        )
    return found
