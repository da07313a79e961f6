"""The tree of field nodes for a JSON Schema, and for a document that need not fit the schema.

Building never raises on any JSON. A part that is too large, or that no control can show, becomes a JSON box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nbagent.forms.answer.check import Checker
from nbagent.forms.nodes import (
    Branch,
    Const,
    Grid,
    Lazy,
    Leaf,
    Map,
    Node,
    Object,
    Parts,
    Rows,
    Union,
)
from nbagent.forms.schema.fields import (
    consts_of,
    escaped,
    field_schema,
    invites_more,
    key_options,
    label_from,
    limits_from,
    object_fields,
    required_names,
    rest_schema,
    tag_of,
)
from nbagent.forms.schema.match import best_branch
from nbagent.forms.schema.refs import SHAPE_TITLE, Keywords, Refs
from nbagent.forms.schema.shape import SchemaInfo, hint_of, notes, schema_info, text_of
from nbagent.forms.secrets import (
    MASK,
    Expand,
    SecretSearch,
    conceal,
    has_mask,
    is_secret,
    may_hold_secret,
    without_masks,
)
from nbagent.forms.spec import spec
from nbagent.forms.texts import text_for
from nbagent.forms.values import (
    ABSENT,
    Json,
    as_document,
    as_text,
    dict_or_empty,
    dumps,
    list_or_empty,
)

from .grid import FEW, MANY, MAX_CELLS, MAX_COLUMNS, grid_columns, implied_schema, is_plain
from .grid import MAX_TEXT as MAX_GRIDS
from .leaves import NodeArgs, default_text, fits_control, json_box, leaf, multi
from .source import FormSource, source_of

MAX_DEPTH = 12
"""Levels of nesting with controls; deeper parts are JSON boxes."""
MAX_HELP = 2_000
MAX_FIELDS = 500
"""Fields of a form; further parts are JSON boxes."""
TABLE_COLUMNS = 6
"""Fields of a row that still reads well as one line of a table."""
_IN_CELLS = ("text", "int", "num", "decimal", "bool", "choice", "const", "duration")
MAX_SPEC = 256 * 1024
"""Characters of a spec; a larger form is built with fewer fields and more JSON boxes."""


@dataclass(frozen=True)
class FormSetup:
    """The parts of a form: its nodes, what opens a closed shape, and the validator."""

    expand: Expand
    root: Node
    checker: Checker
    foreign: bool = False
    """Whether the target is a bare JSON Schema, which may be from anywhere."""
    has_grid: bool = False


def setup_of(target: Any, value: Any, editable: bool | Iterable[str]) -> FormSetup:  # noqa: FBT001 - as Form
    """The setup of a form for a target; never raises."""
    source = source_of(target)
    document = ABSENT if value is ABSENT else as_document(value, by_alias=source.by_alias)
    names = None if isinstance(editable, bool) else frozenset(editable)
    read_only = editable is False
    builder, root = _bounded(source, names, document, read_only=read_only)
    if has_mask(document):
        document = without_masks(root)
        builder, root = _bounded(source, names, document, read_only=read_only)
    is_foreign = isinstance(target, dict | bool)
    return FormSetup(builder.expand, root, source.checker, is_foreign, builder.grid_size > 0)


def _bounded(
    source: FormSource, editable: frozenset[str] | None, document: Json, *, read_only: bool
) -> tuple[Builder, Node]:
    """The tree with as many fields as fit into ``MAX_SPEC``."""
    for limit in (MAX_FIELDS, 100, 20):
        builder = Builder(source, editable=editable, max_fields=limit)
        root = builder.root(document, read_only=read_only)
        if len(dumps(spec(root))) - builder.grid_size <= MAX_SPEC:
            return builder, root
    builder = Builder(source, editable=editable, max_fields=0)
    return builder, builder.root(document, read_only=read_only)


Origin = Literal["", "document", "default"]
"""Origin of shown values: the document, an enclosing field's default, or none."""


@dataclass(frozen=True)
class NodePlace:
    """The place of a node: the properties that the node gets from its surroundings."""

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
    """The property of this object that is the union's tag, if the object is a branch of a union."""
    is_tag: bool = False
    known: Mapping[str, str] = field(default_factory=dict)
    """References that enclosing nodes came from, and the ids of those nodes."""


class Builder:
    """Builds the nodes of one schema document; ``editable`` names the top-level fields that may be changed."""

    def __init__(
        self,
        source: FormSource,
        *,
        editable: frozenset[str] | None = None,
        max_fields: int = MAX_FIELDS,
    ) -> None:
        self._schema = source.schema
        self._sends_defaults = source.sends_defaults
        self._refs = Refs(source.schema)
        self._secrets = SecretSearch(self._refs, source.schema)
        self._infos: dict[int, tuple[Json, SchemaInfo]] = {}
        self._editable = editable
        self._max_fields = max_fields
        self._remaining = max_fields
        self.grid_size = 0
        """Characters of the cells of all grids in the spec."""

    def root(self, value: Json, *, read_only: bool) -> Node:
        """The whole form, prefilled with a document unless ``value`` is ``ABSENT``."""
        self._remaining = self._max_fields
        origin: Origin = "" if value is ABSENT else "document"
        return self.build(self._schema, NodePlace(value=value, origin=origin, read_only=read_only))

    def expand(self, node: Lazy) -> Node:
        """One level of the shape of a lazy node."""
        self._remaining = self._max_fields
        at = NodePlace(
            id=node.id,
            key=node.key,
            label=node.label,
            secret=node.secret,
            read_only=node.read_only,
            depth=1,
        )
        return self.build(node.schema, at)

    def build(self, schema: Json, at: NodePlace) -> Node:
        """The node for ``schema`` at a place."""
        info = self._info(schema)
        return conceal(self._choose(schema, info, self._args(info, at), at))

    def _info(self, schema: Json) -> SchemaInfo:
        """The kind of a schema, determined once for all references to the schema."""
        known = self._infos.get(id(schema))
        if known is None:
            known = self._infos[id(schema)] = (schema, schema_info(self._refs, schema))
        return known[1]

    def _choose(self, schema: Json, info: SchemaInfo, args: NodeArgs, at: NodePlace) -> Node:
        too_many = isinstance(args.shows, dict | list) and len(args.shows) > self._remaining
        if info.shape == "list" and self._max_fields and at.depth <= MAX_DEPTH:
            grid = self._grid(info.keywords, args, at)
            if grid is not None:
                return grid
        if self._max_fields == 0 or at.depth > MAX_DEPTH or too_many:
            return self._box(info.keywords, args, text_for("too_large"))
        if not fits_control(info, args["value"]):
            return self._box(info.keywords, args)
        if not fits_control(info, args["default"]):
            args = args.evolve(default=ABSENT)
        repeated = sorted(info.refs & set(at.known))
        if repeated and args["value"] is ABSENT and not isinstance(args["default"], dict | list):
            return Lazy(
                **args.evolve(kind="lazy", limits={}),
                of=at.known[repeated[0]],
                schema=schema,
                may_hold_secret=self._secrets.anywhere,
            )
        known = {**dict.fromkeys(info.refs, at.id), **at.known}
        return self._shaped(info, args, replace(at, known=known, secret=args["secret"]))

    def _has_room(self, fields: int, at: NodePlace) -> bool:
        """Reserve room for more fields, before their content is built; return whether there is room."""
        if fields > (self._remaining if at.depth else 2 * self._max_fields):
            return False
        self._remaining -= fields
        return True

    def _box(self, keywords: Keywords, args: NodeArgs, reason: str = "") -> Node:
        """A JSON box instead of a control; the box is secret if one of its fields would be secret."""
        return json_box(args.evolve(secret=args["secret"] or self._secrets.is_in(keywords)), reason)

    def _shaped(self, info: SchemaInfo, args: NodeArgs, at: NodePlace) -> Node:
        match info.shape:
            case "object":
                return self._object(info.keywords, args, at)
            case "map":
                return self._map(info.keywords, args, at)
            case "list":
                return self._list(info.keywords, args, at)
            case "tuple":
                return self._tuple(info.keywords, args, at)
            case "union":
                return self._union(info, args, at)
            case "json":
                return self._box(info.keywords, args, str(notes(info.keywords).get("reason", "")))
            case _:
                node = leaf(info, args)
                return replace(node, always=at.is_tag) if isinstance(node, Const) else node

    def _args(self, info: SchemaInfo, at: NodePlace) -> NodeArgs:
        keywords = info.keywords
        secret = at.secret or is_secret(keywords)
        if "contentSchema" in keywords:  # a text with JSON of this schema
            secret = secret or self._secrets.is_in(keywords["contentSchema"])
        value = ABSENT if secret and at.value == MASK else at.value
        examples = list_or_empty(keywords.get("examples"))
        default, has_default = self._default(keywords, at)
        shown_default = "" if default is ABSENT else default_text(default)
        if default is ABSENT and "hidden_default" in notes(keywords):
            shown_default = text_for("made_when_sent")
        read_only = at.read_only or keywords.get("readOnly") is True
        if at.depth == 1 and self._editable is not None and not at.id.startswith("|"):
            read_only = read_only or at.key not in self._editable
        return NodeArgs(
            id=at.id,
            key=at.key,
            label=at.label or label_from(keywords, at.key),
            help=text_of(keywords, "description")[:MAX_HELP],
            required=at.required,
            nullable=info.nullable or (value is None and info.shape not in ("json", "null")),
            has_default=has_default,
            default_text=shown_default,
            read_only=read_only,
            secret=secret,
            deprecated=keywords.get("deprecated") is True,
            limits=limits_from(keywords),
            hint={**hint_of(keywords), **({"tag": True} if at.is_tag else {})},
            examples=tuple(as_text(each, limit=80) for each in examples[:3]),
            value=value,
            default=ABSENT if default is None and not info.nullable else default,
            sends_default=self._sends_defaults and at.origin == "",
            prefilled=value is not ABSENT and at.origin == "document",
        )

    def _default(self, keywords: Keywords, at: NodePlace) -> tuple[Json, bool]:
        made = notes(keywords)
        if "default" in keywords:
            return keywords["default"], True
        if "made_default" in made:
            return made["made_default"], True
        return ABSENT, "hidden_default" in made or not (at.required or self._sends_defaults)

    def _enter(self, args: NodeArgs, at: NodePlace) -> tuple[Json, NodePlace]:
        """The value that a container shows (ABSENT or null for none), and a template for its children's places."""
        value, default = args["value"], args["default"]
        origin: Origin = at.origin if value not in (ABSENT, None) else ""
        if value is ABSENT and default not in (ABSENT, None):
            value, origin = default, "default"
        child = replace(
            at,
            origin=origin,
            depth=at.depth + 1,
            read_only=args["read_only"],
            label="",
            required=True,
            tag="",
            is_tag=False,
            value=ABSENT,
        )
        return value, child

    def _object(self, keywords: Keywords, args: NodeArgs, at: NodePlace) -> Node:
        value, inner = self._enter(args, at)
        document = dict_or_empty(value)
        schemas = object_fields(self._refs, keywords)
        for key in document:
            schemas.setdefault(key, field_schema(keywords, key))
        if not self._has_room(len(schemas), at):
            return self._box(keywords, args, text_for("too_large"))
        needed = required_names(keywords)
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
        more = self._more(keywords, inner, at) if invites_more(keywords) else None
        return Object(
            **args.evolve(kind="object"), fields=tuple(sorted(fields, key=_order_of)), more=more
        )

    def _more(self, keywords: Keywords, inner: NodePlace, at: NodePlace) -> Map:
        start = replace(inner, id=f"{at.id}/+/*", origin="")
        return Map(
            id=f"{at.id}/+",
            key="+",
            kind="map",
            label="",
            required=False,
            read_only=inner.read_only,
            item=self.build(rest_schema(keywords), start),
        )

    def _map(self, keywords: Keywords, args: NodeArgs, at: NodePlace) -> Node:
        value, inner = self._enter(args, at)
        given = dict_or_empty(value)
        if not self._has_room(1 + len(given), at):
            return self._box(keywords, args, text_for("too_large"))
        item = self.build(rest_schema(keywords), replace(inner, id=f"{at.id}/*", origin=""))
        entries = {
            key: self._row(
                field_schema(keywords, key), replace(inner, value=part, label=key), at, i
            )
            for i, (key, part) in enumerate(given.items())
        }
        options = key_options(keywords)
        return Map(**args.evolve(kind="map"), item=item, entries=entries, key_options=options)

    def _row(self, schema: Json, inner: NodePlace, at: NodePlace, index: int) -> Node:
        return self.build(schema, replace(inner, id=f"{at.id}/{index}", key=str(index)))

    def _list(self, keywords: Keywords, args: NodeArgs, at: NodePlace) -> Node:
        value, inner = self._enter(args, at)
        schema = keywords.get("items", True)
        info = self._info(schema)
        asks_rows = hint_of(keywords).get("widget") == "list" or info.nullable
        if not asks_rows and info.shape in ("choice", "open_choice", "const"):
            write_in = None
            if info.shape == "open_choice":
                write_in = Leaf(id=f"{at.id}/*", key="", kind="text", label="")
            picked = multi(info, args, write_in)
            if picked is not None:
                return picked
        given = list_or_empty(value)
        if not self._has_room(1 + len(given), at):
            return self._box(keywords, args, text_for("too_large"))
        item = self.build(schema, replace(inner, id=f"{at.id}/*", origin=""))
        rows = tuple(
            self._row(
                schema, replace(inner, value=part, label=text_for("item", number=i + 1)), at, i
            )
            for i, part in enumerate(given)
        )
        fields: tuple[Any, ...] = item.fields if isinstance(item, Object) else ()
        is_flat = 0 < len(fields) <= TABLE_COLUMNS and all(
            each.kind in _IN_CELLS and not getattr(each, "multiline", False) for each in fields
        )
        table = is_flat and all(row.kind == "object" for row in rows)
        return Rows(**args.evolve(kind="table" if table else "list"), item=item, rows=rows)

    def _grid(self, keywords: Keywords, args: NodeArgs, at: NodePlace) -> Grid | None:
        """A list of many similar objects as a grid; None if the list is drawn in another way."""
        rows, schema = args.shows, keywords.get("items", True)
        rows = [] if rows is ABSENT else rows
        is_short = isinstance(rows, list) and len(rows) <= FEW
        is_whole = at.id == "" and not args["nullable"]  # a person may paste many rows
        if not isinstance(rows, list) or (is_short and not is_whole) or "prefixItems" in keywords:
            return None
        info = self._info(schema)
        fixed = args["read_only"] or args["secret"] or hint_of(keywords).get("widget") == "list"
        if fixed or info.nullable or not all(isinstance(row, dict) for row in rows):
            return None
        _, inner = self._enter(args, at)
        item = self._grid_row(schema, info, rows, replace(inner, id=f"{at.id}/*", origin=""))
        if item is None or not 0 < len(item.fields) <= MAX_COLUMNS or may_hold_secret(item):
            return None
        too_many = len(rows) * len(item.fields) > MAX_CELLS
        if too_many or (len(rows) <= MANY and not all(map(is_plain, item.fields))):
            return None
        found = grid_columns(item.fields, rows)
        size = 0 if found is None else len(dumps(found[1]))
        if found is None or self.grid_size + size > MAX_GRIDS:
            return None
        self.grid_size += size
        item = replace(item, fields=found[0], more=None)
        return Grid(**args.evolve(kind="grid"), item=item, cells=found[1])

    def _grid_row(
        self, schema: Json, info: SchemaInfo, rows: list[dict[str, Json]], at: NodePlace
    ) -> Object | None:
        """The template of a row, with a field for each name that the schema or a row has."""
        names = dict.fromkeys(name for row in rows for name in row)
        if info.shape == "object":
            item = self.build(schema, at)
        else:
            item = Object(id=at.id, key=at.key, kind="object", label="")
        if info.shape not in ("object", "map") or not isinstance(item, Object):
            return None
        fields = item.fields
        known = {each.key for each in fields}
        more = [name for name in names if name not in known]
        if len(fields) + len(more) > MAX_COLUMNS or not self._has_room(len(more), at):
            return None
        for name in more:
            own = field_schema(info.keywords, name)
            values = [row[name] for row in rows if name in row]
            place = replace(
                at,
                id=f"{at.id}/{escaped(name)}",
                key=name,
                label=name,
                depth=at.depth + 1,
                required=info.shape == "map" and len(values) == len(rows),
            )
            fields += (self.build(implied_schema(values) if own in (True, {}) else own, place),)
        return replace(item, fields=fields)

    def _tuple(self, keywords: Keywords, args: NodeArgs, at: NodePlace) -> Node:
        value, inner = self._enter(args, at)
        schemas = keywords["prefixItems"] if "prefixItems" in keywords else keywords["items"]
        given = list_or_empty(value)
        if len(given) > len(schemas) or not self._has_room(len(schemas), at):
            return self._box(keywords, args)
        parts = tuple(
            self._row(
                schema,
                replace(
                    inner,
                    value=given[i] if i < len(given) else ABSENT,
                    label=text_of(self._info(schema).keywords, "title")
                    or text_for("part", number=i + 1),
                ),
                at,
                i,
            )
            for i, schema in enumerate(schemas)
        )
        least = keywords.get("minItems")
        least = least if isinstance(least, int) else 0
        return Parts(**args.evolve(kind="tuple"), parts=parts, least=min(int(least), len(parts)))

    def _union(self, info: SchemaInfo, args: NodeArgs, at: NodePlace) -> Node:
        value, inner = self._enter(args, at)
        schemas = [schema for _, schema in info.branches]
        taken = None
        if value not in (ABSENT, None):
            taken = best_branch(self._refs, schemas, value)
            if taken is None and args["value"] is not ABSENT:
                return self._box(info.keywords, args)
        if not self._has_room(len(schemas), at):
            return self._box(info.keywords, args, text_for("too_large"))
        tag = tag_of(self._refs, info.keywords, schemas)
        branches = []
        for index, (raw, schema) in enumerate(info.branches):
            start = replace(inner, id=f"{at.id}|{index}", tag=tag)
            place = replace(start, value=value) if index == taken else replace(start, origin="")
            node = self.build(schema, place)
            keywords = self._refs.flatten(schema).keywords
            name = text_of(keywords, "title") or text_of(keywords, SHAPE_TITLE)
            if tag and not name:
                name = consts_of(self._refs, schema).get(tag, "")
            branches.append(Branch(name or text_for(f"kind_{node.kind}"), node, raw))
        return Union(
            **args.evolve(kind="union"),
            branches=tuple(branches),
            branch=taken,
            exclusive="oneOf" in info.keywords,
        )


def _order_of(node: Node) -> float:
    """The sort key of a field by its hints; fields without the hint keep their order."""
    order = node.hint.get("order")
    return float(order) if isinstance(order, int) and abs(order) < 10**6 else 0.0
