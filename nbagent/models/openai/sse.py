"""Server-sent events out of bytes that come in any pieces.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import Iterator


class SSEDecoder:
    """Splits bytes, in whatever pieces they come, into the data of server-sent events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of that data."""
        self._after_cr = False

    @property
    def held(self) -> int:
        """Bytes of an event that is not whole yet, its line ends included."""
        return len(self._rest) + self._size

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that these bytes complete."""
        if (
            data.startswith(b"data: {")
            and data.endswith(b"}\n\n")
            and data.count(b"\n") == 2
            and not (self._after_cr or self._rest or self._data or b"\r" in data)
        ):
            return [data[6:-2]]  # one whole event, as nearly all come
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest += data
        if b"\n" not in data:
            return []
        lines = bytes(self._rest).split(b"\n")
        self._rest = bytearray(lines.pop())
        return list(self._events(lines))

    def _events(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._size += len(line) + 1
            elif not line and self._data:
                yield self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data, self._size = [], 0
