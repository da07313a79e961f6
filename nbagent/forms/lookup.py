"""Where references lead inside one document: by pointer, by ``$id`` and by anchor; never past it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urldefrag, urljoin

from .values import Json, children

MAX_INDEXED = 200_000
_DATA = ("enum", "const", "default", "examples")
"""Keywords that hold values, in which nothing is a schema."""
_OLD = ("draft-03", "draft-04")
"""Drafts that write ``id`` for ``$id``."""
MAX_INDEX = 9
"""Digits of a place in a list."""


@dataclass
class _Index:
    """Schemas by address; ``bases`` has the address, by id, of schemas that are not at the root's."""

    root: str = ""
    addressed: dict[str, Json] = field(default_factory=dict)
    bases: dict[int, str] = field(default_factory=dict)


class Lookup:
    """Finds what a reference points to."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._made: _Index | None = None

    def named(self, ref: str, schema: Json) -> str:
        """One name for a reference that stands in ``schema``, wherever else it stands."""
        index = self._index()
        base = index.bases.get(id(schema), index.root)
        return ref if ref.startswith("#") and base == index.root else _joined(base, ref)

    def target(self, ref: str, schema: Json = None) -> Json | None:
        """What a reference that stands in ``schema`` points to inside this document, or None."""
        index = self._index()
        base, _, fragment = self.named(ref, schema).partition("#")
        start = self._root if base in ("", index.root) else index.addressed.get(base)
        if start is None or not fragment:
            return start
        if fragment.startswith("/"):
            return _pointed(start, fragment)
        return index.addressed.get(f"{base or index.root}#{fragment}")

    def _index(self) -> _Index:
        if self._made is None:
            self._made = _indexed(self._root)
        return self._made


def _joined(base: str, ref: str) -> str:
    try:
        return base + ref if ref.startswith("#") else urljoin(base, ref)
    except ValueError:  # no address at all
        return ref


def _pointed(root: Json, pointer: str) -> Json | None:
    here = root
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif isinstance(here, list) and _is_index(name) and int(name) < len(here):
            here = here[int(name)]
        else:
            return None
    return here if isinstance(here, dict | bool) else None


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= MAX_INDEX


def _indexed(root: Json) -> _Index:
    """Every address in a document; the first of a name wins."""
    index = _Index()
    draft = root.get("$schema") if isinstance(root, dict) else ""
    word = "id" if any(old in str(draft) for old in _OLD) else "$id"
    todo: list[tuple[Json, str]] = [(root, "")]
    for _ in range(MAX_INDEXED):
        if not todo:
            break
        item, base = todo.pop()
        if isinstance(item, dict):
            base = _addressed(index, item, base, word)
            if item is root:
                index.root = base
            elif base != index.root:
                index.bases[id(item)] = base
            item = [each for key, each in item.items() if key not in _DATA]
        todo.extend((each, base) for each in children(item))
    return index


def _addressed(index: _Index, schema: dict[str, Json], base: str, word: str) -> str:
    """The address of a schema, noted with its anchors."""
    name = schema.get(word)
    if isinstance(name, str) and name.startswith("#"):
        index.addressed.setdefault(base + name, schema)
    elif isinstance(name, str):
        base = urldefrag(_joined(base, name))[0]
        index.addressed.setdefault(base, schema)
    for anchor in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := schema.get(anchor), str):
            index.addressed.setdefault(f"{base}#{name}", schema)
    return base
