"""Addresses of web pages that others name: which host they lead to, in the letters that tell it apart."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\]")
_MISREAD = re.compile(r"[\\\s\x00-\x1f\x7f]")
"""What browsers read in another way, or leave out."""


def host_of(address: str) -> str | None:
    """The host that a page's address leads to, as browsers ask for it: in ASCII, so that no letter looks like another.

    None where it is no address of a page (``http`` or ``https``), or one that may be read in two ways.
    """
    if _MISREAD.search(address):
        return None
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
        told = (host or "").encode("idna").decode("ascii").lower()
    except ValueError:  # UnicodeError too
        return None
    told = f"[{told}]" if ":" in told else told
    return told if parts.scheme in ("http", "https") and _HOST.fullmatch(told) else None
