"""Fields that look as if a secret is wanted: a schema from outside must not ask for one."""

from __future__ import annotations

import re

from .nodes import Lazy, Node
from .spec import below

_ENDS = {
    "password", "passwd", "passphrase", "passcode", "pwd", "pin", "secret", "token", "apikey", "credential",
    "credentials",
}  # fmt: skip
_KEYS = {"api", "access", "private", "secret", "signing", "encryption", "auth"}
_HARMLESS = {"page", "next", "previous", "continuation", "cursor", "sync", "start", "stop", "max"}
"""Words before ``token`` that make it a place in a list, or a count."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_TYPED = ("text", "code", "file", "json")
MAX_TOLD = 5


def asked_secrets(root: Node) -> tuple[str, ...]:
    """The labels of such fields, the first few of them."""
    found: dict[str, None] = {}
    todo = [root]
    while todo and len(found) < MAX_TOLD:
        node = todo.pop(0)
        if (node.secret or _sounds_secret(node)) and not node.read_only:
            found[node.label or node.key] = None
        elif not isinstance(node, Lazy):
            todo.extend(below(node))
    return tuple(found)


def _sounds_secret(node: Node) -> bool:
    return node.kind in _TYPED and any(map(_names_secret, (node.key, node.label)))


def _names_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    *before, last = words
    if last in _ENDS:
        return not (last == "token" and before and before[-1] in _HARMLESS)
    return last == "key" and bool(before) and before[-1] in _KEYS
