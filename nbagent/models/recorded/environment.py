"""Environment variables that record all models of this process into one file, or replay the file."""

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
"""The variables with the file for recording or replaying all models of this process."""
ANSWERS = "NBAGENT_ANSWERS"
"""The variable with a JSON file of answers, in the form of ``answers=``, for a recording without a person."""

_shared: dict[tuple[str, Path], Recording | Replay] = {}
"""The recordings and replays of this process, by mode and file."""


def process_recording(*, if_exists: bool = False) -> Recording | Replay | None:
    """The recording or replay of all models of this process; None if no variable is set.

    Args:
        if_exists: whether the file to replay may be missing, for example if a notebook has its own recording.

    Raises:
        ModelConfigError: both variables are set, or a file cannot be read.
    """
    record, replay = os.environ.get(RECORD), os.environ.get(REPLAY)
    if record and replay:
        raise ModelConfigError(f"{RECORD} and {REPLAY} are both set. Unset one of them")
    place = record or replay
    if not place or (if_exists and not record and not Path(place).exists()):
        return None
    key = (RECORD if record else REPLAY, Path(place).absolute())
    if key not in _shared:
        scrubber = Scrubber()
        _shared[key] = (
            Recording(key[1], scrubber, given_answers()) if record else Replay(key[1], scrubber, ())
        )
    return _shared[key]


_own: list[Replay] = []
"""Replays of the code's own recordings, if the environment asks for a replay."""


def count_as_of_process(replay: Replay) -> None:
    """Count the replay of the code's own recording as one of this process, if the environment asks for a replay."""
    if os.environ.get(REPLAY):
        _own.append(replay)


def unused() -> list[str]:
    """The unused entries of this process's replays so far: a text for each recording.

    An entry is unused if no replay of its file has used it.

    Raises:
        ModelConfigError: as ``process_recording``.
    """
    shared = process_recording(if_exists=True)
    by_path: dict[Path, list[Replay]] = {}
    for replay in (*_own, *([shared] if isinstance(shared, Replay) else [])):
        by_path.setdefault(replay.path, []).append(replay)
    return [
        same[0].describe(left)
        for same in by_path.values()
        if (left := set.intersection(*(each.unused() for each in same)))
    ]


def given_answers() -> Answers:
    """The answers for a recording, from the file in ``NBAGENT_ANSWERS``; None without this variable.

    Raises:
        ModelConfigError: the file cannot be read, or has neither a list nor a JSON object.
    """
    place = os.environ.get(ANSWERS)
    if not place:
        return None
    try:
        found: Answers = json.loads(Path(place).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelConfigError(f"{ANSWERS}={place!r} is not valid JSON: {error}") from error
    if not isinstance(found, list | dict):
        raise ModelConfigError(
            f"{ANSWERS}={place!r} must be a list in the order of the questions, or an object by tool name"
        )
    return found
