"""Where a tool raised: for the person and the log, never for the model or the journal."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

MAX_FRAMES = 8
"""The last frames that are told, of the error and of each that led to it."""
MAX_TEXT = 4_000
"""Characters of a traceback that are kept, from its end."""

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Raised:
    """Kept in the place of a tool's value: the traceback of what it raised."""

    traceback: str

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        """From the exception, without the engine's own frames before the tool's."""
        first = error.__traceback__
        while first is not None and first.tb_frame.f_code.co_filename.startswith(_HERE):
            first = first.tb_next
        told = traceback.TracebackException(
            type(error), error, first or error.__traceback__, limit=-MAX_FRAMES
        )
        text = "".join(told.format()).strip()
        return cls(text if len(text) <= MAX_TEXT else f"…{text[-MAX_TEXT:]}")
