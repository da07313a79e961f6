"""The host of a web address that others wrote, in unambiguous letters."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\]")
MAX_ADDRESS = 8_000
"""Maximum characters of an address: converting a host of megabytes takes seconds."""
_MISREAD = re.compile(r"[\\\s\x00-\x1f\x7f]")
"""Characters that browsers interpret differently, or ignore."""


def host_of(address: str) -> str | None:
    """The host of a page's address in ASCII, as browsers request it, so that no letter looks like another.

    None if the address is ambiguous or too long, or is not the address of a page (``http`` or ``https``).
    """
    if len(address) > MAX_ADDRESS or _MISREAD.search(address):
        return None
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
        ascii_host = (host or "").encode("idna").decode("ascii").lower()
    except ValueError:  # or UnicodeError, which is a ValueError
        return None
    ascii_host = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
    return ascii_host if parts.scheme in ("http", "https") and _HOST.fullmatch(ascii_host) else None
