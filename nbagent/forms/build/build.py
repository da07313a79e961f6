"""A JSON Schema, and a document that need not fit it, to the tree of field nodes.

Building never raises on any JSON: what has no control of its own becomes a JSON box, at that node only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from nbagent.forms.answer.check import Checker
from nbagent.forms.answer.decode import Opens
from nbagent.forms.build.source import Source, source_of
from nbagent.forms.nodes.nodes import (
    Branch,
    Choice,
    Const,
    Lazy,
    Leaf,
    Map,
    Node,
    Object,
    Parts,
    Rows,
    Union,
)
from nbagent.forms.nodes.spec import spec
from nbagent.forms.schema.fields import (
    consts_of,
    escaped,
    field_schema,
    help_from,
    invites_more,
    is_secret,
    key_options,
    label_from,
    limits_from,
    mentions_secret,
    object_fields,
    required_names,
    rest_schema,
    tag_of,
    title_of,
)
from nbagent.forms.schema.match import best_branch
from nbagent.forms.schema.refs import NAME, Refs, Words
from nbagent.forms.schema.shape import Look, hint_of, look, notes
from nbagent.forms.secrets import masked, without_masks
from nbagent.forms.texts import say
from nbagent.forms.values import ABSENT, MASK, Json, as_document, dumps, shown

from .leaves import Common, default_text, fits_control, hidden_if_secret, json_box, leaf, multi

MAX_DEPTH = 12
"""Levels of nesting with controls; deeper parts are JSON boxes."""
MAX_FIELDS = 500
"""Fields of a form; beyond, parts are JSON boxes."""
TABLE_COLUMNS = 6

Origin = Literal["", "document", "default"]
"""Where shown values come from: the document, an enclosing field's default, or nowhere."""


@dataclass(frozen=True)
class At:
    """The place of a node: what its surroundings say about it."""

    id: str = ""
    key: str = ""
    label: str = ""
    required: bool = True
    depth: int = 0
    value: Json = ABSENT
    origin: Origin = ""
    secret: bool = False
    read_only: bool = False
    tag: str = ""
    """The property of this object that is the tag of the union it is a branch of."""
    is_tag: bool = False
    known: Mapping[str, str] = field(default_factory=dict)
    """References that enclosing nodes came from, and the ids of those nodes."""


class Builder:
    """Builds the nodes of one schema document.

    ``sends_defaults`` is the rule of forms that have only a JSON Schema: what is left untouched is
    answered with its default. ``editable`` names the top-level fields that may be changed.
    """

    def __init__(
        self,
        schema: Json,
        *,
        sends_defaults: bool,
        editable: frozenset[str] | None = None,
        max_fields: int = MAX_FIELDS,
    ) -> None:
        self._refs = Refs(schema)
        self._looks: dict[int, tuple[Json, Look]] = {}
        self._schema = schema
        self._sends_defaults = sends_defaults
        self._editable = editable
        self._max_fields = max_fields
        self._left = max_fields

    def root(self, value: Json, *, read_only: bool) -> Node:
        """The whole form, prefilled with a document unless ``value`` is ``ABSENT``."""
        self._left = self._max_fields
        origin: Origin = "" if value is ABSENT else "document"
        return self.build(self._schema, At(value=value, origin=origin, read_only=read_only))

    def expand(self, node: Lazy) -> Node:
        """The shape behind a lazy node, one level of it."""
        self._left = self._max_fields
        at = At(
            id=node.id,
            key=node.key,
            label=node.label,
            secret=node.secret,
            read_only=node.read_only,
            depth=1,
        )
        return self.build(node.schema, at)

    def build(self, schema: Json, at: At) -> Node:
        """The node for ``schema`` at a place."""
        found = self._look(schema)
        common = self._common(found, at)
        return hidden_if_secret(self._choose(schema, found, common, at))

    def _look(self, schema: Json) -> Look:
        """One look per schema, however often references lead to it."""
        known = self._looks.get(id(schema))
        if known is None:
            known = self._looks[id(schema)] = (schema, look(self._refs, schema))
        return known[1]

    def _choose(self, schema: Json, found: Look, common: Common, at: At) -> Node:
        if self._max_fields == 0 or at.depth > MAX_DEPTH or self._too_many(common):
            return self._box(found.words, common, say("too_large"))
        if not fits_control(found, common["value"]):
            return self._box(found.words, common)
        if not fits_control(found, common["default"]):
            common = Common(common.but(default=ABSENT))
        repeated = sorted(found.refs & set(at.known))
        if (
            repeated
            and common["value"] is ABSENT
            and not isinstance(common["default"], dict | list)
        ):
            return Lazy(
                **common.but(kind="lazy", limits={}), of=at.known[repeated[0]], schema=schema
            )
        known = {**dict.fromkeys(found.refs, at.id), **at.known}
        return self._shaped(found, common, replace(at, known=known, secret=common["secret"]))

    def _has_room(self, fields: int, at: At) -> bool:
        """Whether so many fields more can be drawn; they are counted at once, before what is in them."""
        if fields > (self._left if at.depth else 2 * self._max_fields):
            return False
        self._left -= fields
        return True

    def _box(self, words: Words, common: Common, reason: str = "") -> Node:
        """A JSON box in a control's place; what it shows may hold the secrets of fields inside."""
        if common["value"] is not ABSENT and mentions_secret(self._refs, words):
            common = Common(common.but(secret=True))
        return json_box(common, reason)

    def _too_many(self, common: Common) -> bool:
        value = common["default"] if common["value"] is ABSENT else common["value"]
        return isinstance(value, dict | list) and len(value) > self._left

    def _shaped(self, found: Look, common: Common, at: At) -> Node:
        match found.shape:
            case "object":
                return self._object(found.words, common, at)
            case "map":
                return self._map(found.words, common, at)
            case "list":
                return self._list(found.words, common, at)
            case "tuple":
                return self._tuple(found.words, common, at)
            case "union":
                return self._union(found, common, at)
            case _:
                node = leaf(found, common)
                return replace(node, always=at.is_tag) if isinstance(node, Const) else node

    def _common(self, found: Look, at: At) -> Common:
        words = found.words
        secret = at.secret or is_secret(words)
        value = ABSENT if secret and at.value == MASK else at.value
        default, has_default = self._default(words, at)
        examples = words.get("examples")
        read_only = at.read_only or words.get("readOnly") is True
        if at.depth == 1 and self._editable is not None and not at.id.startswith("|"):
            read_only = read_only or at.key not in self._editable
        return Common(
            {
                "id": at.id,
                "key": at.key,
                "label": at.label or label_from(words, at.key),
                "help": help_from(words),
                "required": at.required,
                "nullable": found.nullable
                or (value is None and found.shape not in ("json", "null")),
                "has_default": has_default,
                "default_text": _default_text(words, default),
                "read_only": read_only,
                "secret": secret,
                "deprecated": words.get("deprecated") is True,
                "limits": limits_from(words),
                "hint": {**hint_of(words), **({"tag": True} if at.is_tag else {})},
                "examples": _examples(examples),
                "value": value,
                "default": ABSENT if default is None and not found.nullable else default,
                "sends_default": self._sends_defaults and at.origin == "",
                "prefilled": value is not ABSENT and at.origin == "document",
            }
        )

    def _default(self, words: Words, at: At) -> tuple[Json, bool]:
        made = notes(words)
        if "default" in words:
            return words["default"], True
        if "made_default" in made:
            return made["made_default"], True
        return ABSENT, "hidden_default" in made or not (at.required or self._sends_defaults)

    def _inside(self, common: Common, at: At) -> tuple[Json, At]:
        """What a container shows (ABSENT or null for nothing), and where its children start from."""
        value, default = common["value"], common["default"]
        origin: Origin = at.origin if value not in (ABSENT, None) else ""
        if value is ABSENT and default not in (ABSENT, None):
            value, origin = default, "default"
        child = replace(
            at,
            origin=origin,
            depth=at.depth + 1,
            read_only=common["read_only"],
            label="",
            required=True,
            tag="",
            is_tag=False,
            value=ABSENT,
        )
        return value, child

    def _object(self, words: Words, common: Common, at: At) -> Node:
        value, inner = self._inside(common, at)
        document = value if isinstance(value, dict) else {}
        schemas = object_fields(self._refs, words)
        for key in document:
            schemas.setdefault(key, field_schema(words, key))
        if not self._has_room(len(schemas), at):
            return self._box(words, common, say("too_large"))
        needed = required_names(words)
        fields = [
            self.build(
                schema,
                replace(
                    inner,
                    id=f"{at.id}/{escaped(key)}",
                    key=key,
                    required=key in needed,
                    value=document.get(key, ABSENT),
                    is_tag=bool(at.tag) and key == at.tag,
                ),
            )
            for key, schema in schemas.items()
        ]
        more = self._more(words, inner, at) if invites_more(words) else None
        return Object(
            **common.but(kind="object"), fields=tuple(sorted(fields, key=_order_of)), more=more
        )

    def _more(self, words: Words, inner: At, at: At) -> Map:
        start = replace(inner, id=f"{at.id}/+/*", origin="")
        return Map(
            id=f"{at.id}/+",
            key="+",
            kind="map",
            label="",
            required=False,
            read_only=inner.read_only,
            item=self.build(rest_schema(words), start),
        )

    def _map(self, words: Words, common: Common, at: At) -> Node:
        value, inner = self._inside(common, at)
        given = value if isinstance(value, dict) else {}
        if not self._has_room(1 + len(given), at):
            return self._box(words, common, say("too_large"))
        item = self.build(rest_schema(words), replace(inner, id=f"{at.id}/*", origin=""))
        entries = tuple(
            (key, self._row(field_schema(words, key), replace(inner, value=part, label=key), at, i))
            for i, (key, part) in enumerate(given.items())
        )
        options = key_options(words)
        return Map(**common.but(kind="map"), item=item, entries=entries, key_options=options)

    def _row(self, schema: Json, inner: At, at: At, index: int) -> Node:
        return self.build(schema, replace(inner, id=f"{at.id}/{index}", key=str(index)))

    def _list(self, words: Words, common: Common, at: At) -> Node:
        value, inner = self._inside(common, at)
        schema = words.get("items", True)
        picked = self._multi(schema, words, common, at)
        if picked is not None:
            return picked
        given = value if isinstance(value, list) else []
        if not self._has_room(1 + len(given), at):
            return self._box(words, common, say("too_large"))
        item = self.build(schema, replace(inner, id=f"{at.id}/*", origin=""))
        rows = tuple(
            self._row(schema, replace(inner, value=part, label=say("item", number=i + 1)), at, i)
            for i, part in enumerate(given)
        )
        table = _flat_row(item, TABLE_COLUMNS) and all(row.kind == "object" for row in rows)
        return Rows(**common.but(kind="table" if table else "list"), item=item, rows=rows)

    def _multi(self, schema: Json, words: Words, common: Common, at: At) -> Choice | None:
        item = self._look(schema)
        asks_rows = hint_of(words).get("widget") == "list" or item.nullable
        if asks_rows or item.shape not in ("choice", "open_choice", "const"):
            return None
        write_in = None
        if item.shape == "open_choice":
            write_in = Leaf(id=f"{at.id}/*", key="", kind="text", label="")
        return multi(item, common, write_in)

    def _tuple(self, words: Words, common: Common, at: At) -> Node:
        value, inner = self._inside(common, at)
        schemas = words["prefixItems"] if "prefixItems" in words else words["items"]
        given = value if isinstance(value, list) else []
        if len(given) > len(schemas) or not self._has_room(len(schemas), at):
            return self._box(words, common)
        parts = tuple(
            self._row(
                schema,
                replace(
                    inner,
                    value=given[i] if i < len(given) else ABSENT,
                    label=title_of(self._look(schema).words) or say("part", number=i + 1),
                ),
                at,
                i,
            )
            for i, schema in enumerate(schemas)
        )
        least = words.get("minItems")
        least = least if isinstance(least, int) else 0
        return Parts(**common.but(kind="tuple"), parts=parts, least=min(int(least), len(parts)))

    def _union(self, found: Look, common: Common, at: At) -> Node:
        value, inner = self._inside(common, at)
        schemas = [schema for _, schema in found.branches]
        taken = None
        if value not in (ABSENT, None):
            taken = best_branch(self._refs, schemas, value)
            if taken is None and common["value"] is not ABSENT:
                return self._box(found.words, common)
        if not self._has_room(len(schemas), at):
            return self._box(found.words, common, say("too_large"))
        tag = tag_of(self._refs, found.words, schemas)
        branches = []
        for index, (raw, schema) in enumerate(found.branches):
            start = replace(inner, id=f"{at.id}|{index}", tag=tag)
            mine = replace(start, value=value) if index == taken else replace(start, origin="")
            node = self.build(schema, mine)
            branches.append(Branch(_branch_label(self._refs, schema, node, tag), node, raw))
        return Union(
            **common.but(kind="union"),
            branches=tuple(branches),
            branch=taken,
            exclusive="oneOf" in found.words,
        )


def _examples(examples: Json) -> tuple[str, ...]:
    listed = examples if isinstance(examples, list) else []
    return tuple(shown(each, limit=80) for each in listed[:3])


def _default_text(words: Words, default: Json) -> str:
    if default is not ABSENT:
        return default_text(default)
    return say("made_when_sent") if "hidden_default" in notes(words) else ""


MAX_SPEC = 256 * 1024
"""Characters of a spec; a larger form is built with fewer fields and more JSON boxes."""


class Tree(Opens, Protocol):
    """Makes the nodes of a form for a document."""

    def root(self, value: Json, *, read_only: bool) -> Node:
        """The whole tree, prefilled unless ``value`` is ``ABSENT``."""
        ...


@dataclass(frozen=True)
class Made:
    """What a form works with: its nodes and how to make them anew, the validator, the prefill."""

    tree: Tree
    root: Node
    checker: Checker
    document: Json
    outside: bool = False
    """Whether it is a bare JSON Schema, which may come from anywhere."""


def made_of(target: Any, value: Any, editable: bool | Iterable[str]) -> Made:  # noqa: FBT001 - as Form
    """The parts of a form for a target; never raises."""
    source = source_of(target)
    document = ABSENT if value is ABSENT else as_document(value)
    named = None if isinstance(editable, bool) else frozenset(editable)
    read_only = editable is False
    tree, root = _grown(source, named, document, read_only=read_only)
    if masked(document):
        document = without_masks(root)
        tree, root = _grown(source, named, document, read_only=read_only)
    return Made(tree, root, source.checker, document, isinstance(target, dict | bool))


def _grown(
    source: Source, editable: frozenset[str] | None, document: Json, *, read_only: bool
) -> tuple[Tree, Node]:
    """The tree with as many fields as a spec has room for."""
    for limit in (MAX_FIELDS, 100, 20):
        tree = _builder(source, editable, limit)
        root = tree.root(document, read_only=read_only)
        if len(dumps(spec(root))) <= MAX_SPEC:
            return tree, root
    tree = _builder(source, editable, 0)
    return tree, tree.root(document, read_only=read_only)


def _builder(source: Source, editable: frozenset[str] | None, limit: int) -> Builder:
    return Builder(
        source.schema, sends_defaults=source.sends_defaults, editable=editable, max_fields=limit
    )


def _order_of(node: Node) -> float:
    """Where the hints put a field; without one it keeps its place."""
    order = node.hint.get("order")
    return float(order) if isinstance(order, int) and abs(order) < 10**6 else 0.0


def _branch_label(refs: Refs, schema: Json, node: Node, tag: str) -> str:
    """What a branch of a union is called."""
    words = refs.flatten(schema).words
    for name in (words.get("title"), words.get(NAME)):
        if isinstance(name, str) and name.strip():
            return name.strip()
    if tag and tag in (consts := consts_of(refs, schema)):
        return consts[tag]
    return say(f"kind_{node.kind}")


def _flat_row(node: Node, limit: int) -> bool:
    """Whether rows of this shape read well as a table."""
    fields: tuple[Any, ...] = getattr(node, "fields", ())
    simple = {"text", "int", "num", "decimal", "bool", "choice", "const", "duration"}
    return (
        node.kind == "object"
        and 0 < len(fields) <= limit
        and all(each.kind in simple and not getattr(each, "multiline", False) for each in fields)
    )
