"""What a tool prints, while it runs: bounded, and cheap to send."""

from __future__ import annotations

from nbagent.core.output import MAX_PRINTED

from .reveal import reveal, terminal
from .texts import TEXTS


class Printout:
    """Printed text: appended to where that is all that happens, drawn anew where lines change."""

    def __init__(self, text: str = "") -> None:
        self._source = [text] if text else []
        self._size = len(text)
        self._pending: list[str] = []
        self._left_out = 0
        self.shown = terminal(text)

    @property
    def settled(self) -> bool:
        """Whether everything is in ``shown``."""
        return not self._pending

    @property
    def whole(self) -> str:
        """All of it, what is pending included, and how much is left out."""
        text = terminal("".join([*self._source, *self._pending])) if self._pending else self.shown
        if not self._left_out:
            return text
        return f"{text}\n{TEXTS['more_printed'].format(n=f'{self._left_out:,}')}\n"

    def add(self, text: str) -> bool:
        """Take more text; False where it is only counted, as there is enough of it until the end."""
        room = max(0, MAX_PRINTED - self._size)
        self._size += len(text)
        self._left_out += max(0, len(text) - room)
        if room:
            self._pending.append(text[:room])
        return not self._left_out

    def work_in(self) -> str | None:
        """The text to append to what is shown, or None where ``shown`` is drawn anew."""
        new = "".join(self._pending)
        self._pending.clear()
        if not new:
            return ""
        self._source.append(new)
        if "\r" in new or "\x1b" in new:
            self.shown = terminal("".join(self._source))
            return None
        new = reveal(new)
        self.shown += new
        return new
