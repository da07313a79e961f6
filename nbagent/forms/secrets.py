"""pydantic's masks for secrets, taken out of what would be sent: a mask is not the secret."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .nodes.nodes import Lazy, Map, Node, Object, Rows, Union
from .nodes.spec import below, holds_secret
from .texts import say
from .values import ABSENT, MASK, Json, children, dumps

SHORT = 3
"""Characters up to which a secret cannot be cut out of a sentence without wrecking it."""


def texts_in(value: Json) -> set[str]:
    """Every text anywhere inside a value."""
    todo, found = [value], set()
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            found.add(item)
        todo.extend(children(item))
    return found


def unmasked(value: Json) -> Json:
    """The value with pydantic's masks for secrets replaced by another, so that they count as given."""
    if isinstance(value, dict):
        return {key: unmasked(each) for key, each in value.items()}
    if isinstance(value, list):
        return [unmasked(each) for each in value]
    return say("provided") if value == MASK else value


def scrubbed(message: str, secrets: Iterable[str]) -> str:
    """The message without any secret in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if secret not in message:
            continue
        if len(secret) <= SHORT:
            return say("secret_wrong")
        message = message.replace(secret, "•••")
    return message


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


def masked(value: Json) -> bool:
    """Whether a mask stands anywhere inside."""
    return value is not ABSENT and MASK in dumps(value)


def without_masks(node: Node) -> Json:
    """The value of a node, with masked secrets left out; ``ABSENT`` where it is one itself."""
    if node.value is ABSENT or not holds_secret(node):
        return node.value
    match node:
        case Object():
            kept = {each.key: without_masks(each) for each in node.fields}
            return {key: kept[key] for key in node.value if kept.get(key, ABSENT) is not ABSENT}
        case Map():
            entries = {key: without_masks(each) for key, each in node.entries}
            return {key: each for key, each in entries.items() if each is not ABSENT}
        case Rows():
            rows = [without_masks(each) for each in node.rows]
            return [each for each in rows if each is not ABSENT]
        case Union() if node.branch is not None:
            return without_masks(node.branches[node.branch].node)
        case _:
            return node.value
