"""The secrets of a form, and everything that prevents them from being shown or stored.

A schema defines its secrets (``is_secret``). The builder marks the node of a secret field, and every node below
that node, with ``secret``. Other modules leave out the value of a marked node. This module decides all other
effects of the mark: on defaults, prefills, answers, drafts and messages. It also warns before a form that
somebody else wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from .nodes import MAX_LEVELS, Draft, Lazy, Map, Node, Object, Parts, Rows, Union, below
from .schema.refs import Keywords, Refs
from .texts import text_for
from .values import ABSENT, Json, children, dict_or_empty, list_or_empty, texts_in

MASK = "**********"
"""pydantic's text in place of a secret; a real secret with this text counts as a mask."""
MAX_SEARCHED = 20_000
"""Parts of a document's schemas that are searched for secrets; a schema with further parts counts as secret."""
MAX_LABELS = 5
"""Fields that the warning names."""
SHORT = 3
"""Characters of a secret that is too short to be replaced in a message: the whole message is replaced."""

Expand: TypeAlias = Callable[[Lazy], Node]
"""A function that returns one level of a lazy node, whose shape repeats an enclosing shape."""


def is_secret(keywords: Keywords) -> bool:
    """Whether a schema's values are secret."""
    return keywords.get("format") == "password" or keywords.get("writeOnly") is True


class SecretSearch:
    """A search for secret fields in the schemas of one document; one bound applies to all searches together."""

    def __init__(self, refs: Refs, root: Json) -> None:
        self._refs = refs
        self._root = root
        self._remaining = MAX_SEARCHED

    @cached_property
    def anywhere(self) -> bool:
        """Whether the document has a secret field at all."""
        return self._finds(self._root)

    def is_in(self, schema: Json) -> bool:
        """Whether a secret field is anywhere in one of the document's schemas."""
        return self.anywhere and self._finds(schema)

    def _finds(self, schema: Json) -> bool:
        todo: list[Json] = [schema]
        followed: set[str] = set()
        while todo and self._remaining:
            self._remaining -= 1
            item = todo.pop()
            todo.extend(children(item))
            if isinstance(item, dict):
                if is_secret(item):
                    return True
                ref = self._refs.ref_of(item)
                if ref and ref not in followed:
                    followed.add(ref)
                    todo.append(self._refs.target(ref))
        return bool(todo)


def may_hold_secret(node: Node) -> bool:
    """Whether the node or any node below it is secret, or is a lazy node that may contain a secret."""
    if node.secret or (isinstance(node, Lazy) and node.may_hold_secret):
        return True
    return any(map(may_hold_secret, below(node)))


def conceal(node: Node) -> Node:
    """The node, without the default and examples of a secret; a default that contains masks is never sent."""
    if node.secret:
        return replace(node, default=ABSENT, default_text="", examples=())
    if node.sends_default and has_mask(node.default) and may_hold_secret(node):
        return replace(node, sends_default=False)
    return node


def has_mask(value: Json) -> bool:
    """Whether a mask is anywhere in a value."""
    return value is not ABSENT and MASK in texts_in(value)


def without_masks(node: Node) -> Json:
    """The value of a node, without masked secrets; ``ABSENT`` if that leaves no value."""
    if not has_mask(node.value) or not may_hold_secret(node):
        return node.value
    match node:
        case Object():
            kept = {each.key: without_masks(each) for each in node.fields}
            return {key: kept[key] for key in node.value if kept.get(key, ABSENT) is not ABSENT}
        case Map():
            entries = {key: without_masks(each) for key, each in node.entries.items()}
            return {key: each for key, each in entries.items() if each is not ABSENT}
        case Rows():
            rows = [without_masks(each) for each in node.rows]
            return [each for each in rows if each is not ABSENT]
        case Parts():
            parts = [without_masks(each) for each in node.parts[: len(node.value)]]
            return ABSENT if ABSENT in parts else parts
        case Union() if node.branch is not None:
            return without_masks(node.branches[node.branch].node)
        case _:
            return ABSENT if node.secret else node.value


def without_secrets(node: Node | None, answer: Json, provided: str) -> Json:
    """An answer to show: ``provided`` replaces each part that is secret or may contain a secret."""
    if node is None or answer is None:
        return answer
    if isinstance(node, Object) and isinstance(answer, Mapping) and not node.secret:
        fields = {each.key: each for each in node.fields}
        other = None if node.more is None else node.more.item
        return {
            k: without_secrets(fields.get(k, other), part, provided) for k, part in answer.items()
        }
    return provided if may_hold_secret(node) else answer


def storable_draft(expand: Expand, node: Node, draft: Draft, level: int = 0) -> Draft:
    """The draft of a node to store: null for every secret, and only parts that belong to the node's tree."""
    if node.secret or not isinstance(draft, dict) or level > MAX_LEVELS:
        return None
    if not may_hold_secret(node):
        return draft
    if "json" in draft:  # one text for the node, including its secrets
        return None
    plain = {name: True for name in ("null", "cleared", "empty") if draft.get(name) is True}
    return plain or _keepable_inside(expand, node, draft, level + 1) or None


def _keepable_inside(
    expand: Expand, node: Node, draft: dict[str, Any], level: int
) -> dict[str, Any]:
    keep = partial(storable_draft, expand, level=level)
    match node:
        case Object():
            given = dict_or_empty(draft.get("fields"))
            known = [each for each in node.fields if each.key in given]
            fields: dict[str, Any] = {
                "fields": {each.key: keep(each, given[each.key]) for each in known}
            }
            if node.more is not None and "more" in draft:
                fields["more"] = keep(node.more, draft["more"])
            return fields
        case Rows():
            return {"rows": [_row(keep, node, each) for each in list_or_empty(draft.get("rows"))]}
        case Map():
            return {
                "entries": [_row(keep, node, each) for each in list_or_empty(draft.get("entries"))]
            }
        case Parts():
            pairs = zip(node.parts, list_or_empty(draft.get("parts")), strict=False)
            return {"parts": [keep(part, each) for part, each in pairs]}
        case Union() if branch := node.branch_at(index := draft.get("branch", node.branch)):
            return {"branch": index, "draft": keep(branch.node, draft.get("draft"))}
        case Lazy() if draft.get("open") is True:
            return {"open": True, "draft": _opened(keep, expand(node), draft.get("draft"))}
        case _:
            return {}


def _row(keep: Callable[[Node, Draft], Draft], node: Rows | Map, row: Json) -> dict[str, Any]:
    """A row of a list or a map; an empty row if the row's source does not exist."""
    given = dict_or_empty(row)
    source = given.get("from")
    template = node.template(source)
    kept: dict[str, Any] = {"from": None, "draft": None}
    if template is not None:
        kept = {"from": source, "draft": keep(template, given.get("draft"))}
    if isinstance(node, Map):
        key = given.get("key", source)
        kept["key"] = key if isinstance(key, str) else ""
    return kept


def _opened(keep: Callable[[Node, Draft], Draft], shape: Node, draft: Draft) -> Draft:
    if not isinstance(draft, dict) or not isinstance(draft.get("text"), str):
        return keep(shape, draft)
    return None if may_hold_secret(shape) else draft  # typed into one JSON box


def secret_texts(answers: Iterable[tuple[Node, Json]]) -> set[str]:
    """Every text in the answers of fields that are secret or hold a secret."""
    return {text for node, value in answers if may_hold_secret(node) for text in texts_in(value)}


def scrub(message: str, secrets: Iterable[str]) -> str:
    """The message without any secret in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if secret not in message:
            continue
        if len(secret) <= SHORT:
            return text_for("secret_wrong")
        message = message.replace(secret, "•••")
    return message


_ENDS = {
    "password", "passwd", "passphrase", "passcode", "pwd", "pin", "secret", "token", "apikey", "credential",
    "credentials",
}  # fmt: skip
_KEYS = {"api", "access", "private", "secret", "signing", "encryption", "auth"}
"""Words before ``key`` that make it a secret."""
_HARMLESS = {"page", "next", "previous", "continuation", "cursor", "sync", "start", "stop", "max"}
"""Words before ``token`` with which it means a place in a list, or a count."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_TYPED = ("text", "code", "file", "json")


def secret_labels(root: Node) -> tuple[str, ...]:
    """The labels of the first few fields that ask for a secret, by their schema or by their name."""
    found: dict[str, None] = {}
    todo = [root]
    while todo and len(found) < MAX_LABELS:
        node = todo.pop(0)
        sounds = node.kind in _TYPED and any(map(_names_secret, (node.key, node.label)))
        if (node.secret or sounds) and not node.read_only:
            found[node.label or node.key] = None
        elif not isinstance(node, Lazy):
            todo.extend(below(node))
    return tuple(found)


def _names_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    *before, last = words
    if last in _ENDS:
        return not (last == "token" and before and before[-1] in _HARMLESS)
    return last == "key" and bool(before) and before[-1] in _KEYS
