"""The kind of a schema, decided before a node is built; null in a union becomes a flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nbagent.forms.hints import HINT_KEY
from nbagent.forms.texts import text_for
from nbagent.forms.values import Json, as_text, dict_or_empty, dumps, equality_key, is_number

from .refs import NOTES, SHAPE_TITLE, Keywords, Refs, merge

Shape = Literal[
    "json", "const", "choice", "open_choice", "union", "decimal", "bool", "int", "num", "text",
    "null", "list", "tuple", "object", "map",
]  # fmt: skip

MAX_OPTIONS = 2_000
_CONSTRAINTS = {"enum", "const", "format", "minLength", "maxLength"}
"""Keywords that limit a text, beside ``pattern``."""
_OF_FIELD = (
    "title", "description", "default", "examples", "deprecated", "readOnly", HINT_KEY, NOTES,
)  # fmt: skip
"""Keywords about the field and not about the branches of its union."""
_OF_DOCUMENT = ("discriminator", "$defs", "definitions", "$schema", "$id")
"""Keywords about the union as a whole, or about its document."""

Branches = tuple[tuple[int, Json], ...]
"""The shapes of a union that are not null: index in the schema's own list, and schema."""


@dataclass(frozen=True)
class SchemaOption:
    """An option of a choice. The ``value`` stays in the kernel; the front end sends the option's index."""

    value: Json
    label: str
    help: str = ""


@dataclass(frozen=True)
class SchemaInfo:
    """The kind of a schema: its shape, its keywords with references followed, and whether it takes null."""

    shape: Shape
    keywords: Keywords
    nullable: bool
    refs: frozenset[str]
    branches: Branches = ()
    options: tuple[SchemaOption, ...] = ()


@dataclass
class _Folded:
    """A schema whose null is being replaced by a flag; ``union_keyword`` is the keyword with the ``branches``."""

    keywords: Keywords
    refs: frozenset[str]
    nullable: bool = False
    union_keyword: str = ""
    branches: Branches = ()


def notes(keywords: Keywords) -> dict[str, Any]:
    """The notes of the schema generator, or of ``Refs``."""
    return dict_or_empty(keywords.get(NOTES))


def hint_of(keywords: Keywords) -> dict[str, Json]:
    """The form hints of a schema."""
    return dict_or_empty(keywords.get(HINT_KEY))


def text_of(keywords: Keywords, keyword: str) -> str:
    """The text of a keyword such as ``title``; empty if there is none."""
    text = keywords.get(keyword)
    return text.strip() if isinstance(text, str) else ""


def schema_info(refs: Refs, schema: Json) -> SchemaInfo:
    """Follow references, replace null by a flag, and decide the kind of the rest."""
    flat = refs.flatten(schema)
    folded = _Folded(flat.keywords, flat.refs)
    for _ in range(8):  # for an Optional of an alias of an Optional …
        if not _fold_once(refs, folded):
            break
    shape, options = _decide(refs, folded)
    branches = _with_base(folded) if shape == "union" else ()
    return SchemaInfo(shape, folded.keywords, folded.nullable, folded.refs, branches, options)


def _fold_once(refs: Refs, folded: _Folded) -> bool:
    """Remove null, and the union around a single branch; return whether there may be more to do."""
    keywords = folded.keywords
    types = keywords.get("type")
    if isinstance(types, list):
        rest = [name for name in types if name != "null"]
        folded.nullable |= 0 < len(rest) < len(types)
        kept = rest[0] if len(rest) == 1 else (rest or "null")
        folded.keywords = {**keywords, "type": kept}
        keywords = folded.keywords
    for keyword in ("anyOf", "oneOf"):
        listed = keywords.get(keyword)
        if not isinstance(listed, list) or not listed:
            continue
        branches = tuple(
            (index, each) for index, each in enumerate(listed) if not _is_null(refs, each)
        )
        folded.nullable |= 0 < len(branches) < len(listed)
        folded.union_keyword, folded.branches = keyword, branches
        if len(branches) != 1 or has_fields(keywords):
            return False
        flat = refs.flatten(branches[0][1])
        beside = {key: value for key, value in keywords.items() if key != keyword}
        folded.keywords = merge(flat.keywords, beside)
        folded.refs |= flat.refs
        folded.union_keyword, folded.branches = "", ()
        return True
    return False


def _is_null(refs: Refs, schema: Json) -> bool:
    if not isinstance(schema, dict):
        return False
    keywords = refs.flatten(schema).keywords
    return keywords.get("type") == "null" or ("const" in keywords and keywords["const"] is None)


def has_fields(keywords: Keywords) -> bool:
    """Whether a schema names properties itself."""
    return bool(dict_or_empty(keywords.get("properties")))


def _decide(refs: Refs, folded: _Folded) -> tuple[Shape, tuple[SchemaOption, ...]]:
    keywords, branches = folded.keywords, folded.branches
    if "reason" in notes(keywords):
        return "json", ()
    if notes(keywords).get("kind") == "decimal":
        return "decimal", ()
    options = _options(refs, keywords, branches)
    if options:
        return ("const" if len(options) == 1 and not branches else "choice"), options
    if has_fields(keywords) or not branches:
        return _by_type(keywords), ()
    return _of_branches(refs, keywords, branches)


def _of_branches(
    refs: Refs, keywords: Keywords, branches: Branches
) -> tuple[Shape, tuple[SchemaOption, ...]]:
    inner = [refs.flatten(schema).keywords for _, schema in branches]
    if keywords.get("type") in ("string", "integer", "number", "boolean"):
        named: tuple[SchemaOption, ...] = ()
        if keywords["type"] == "string":  # a person can also type other text than the listed ones
            found = [option for each in inner for option in _options(refs, each, ())]
            named = _distinct([option for option in found if isinstance(option.value, str)])
        return ("open_choice" if named else _by_type(keywords)), named
    if len(inner) != 2:
        return "union", ()
    types = [each.get("type") for each in inner]
    if sorted(map(str, types)) == ["integer", "number"] and not any("enum" in x for x in inner):
        return "num", ()
    for one, other in (inner, inner[::-1]):
        options = _options(refs, one, ())
        pattern = other.get("pattern")
        # the look-ahead that pydantic writes for Decimals is no constraint
        has_pattern = isinstance(pattern, str) and not pattern.startswith("^(?!^[-+.]*$)")
        free = other.get("type") == "string" and not has_pattern and not _CONSTRAINTS & set(other)
        if free and options and all(isinstance(each.value, str) for each in options):
            return "open_choice", options
        if free and one.get("type") == "number" and not set(one) & {"enum", "const"}:
            return "decimal", ()
    return "union", ()


def _options(refs: Refs, keywords: Keywords, branches: Branches) -> tuple[SchemaOption, ...]:
    """The options of a schema that has only options; otherwise empty."""
    if "const" in keywords:
        return (_const_option(keywords, ""),)
    listed = keywords.get("enum")
    if isinstance(listed, list) and 0 < len(listed) <= MAX_OPTIONS:
        return _listed(keywords, listed)
    found: list[SchemaOption] = []
    for _, schema in branches if not has_fields(keywords) else ():
        inner = refs.flatten(schema).keywords
        if "const" in inner:
            found.append(_const_option(inner, text_of(inner, "description")))
        elif isinstance(inner.get("enum"), list) and inner["enum"]:
            found.extend(_listed(inner, inner["enum"]))
        else:
            return ()
    return _distinct(found)


def _const_option(keywords: Keywords, help_: str) -> SchemaOption:
    return SchemaOption(
        keywords["const"], text_of(keywords, "title") or label_of(keywords["const"]), help_
    )


def _listed(keywords: Keywords, values: list[Json]) -> tuple[SchemaOption, ...]:
    # the titles are the members' names, or the value of a keyword of other form libraries
    lists = (notes(keywords).get("titles"), keywords.get("enumNames"), keywords.get("x-enumTitles"))
    fitting = (each for each in lists if isinstance(each, list) and len(each) == len(values))
    titles = next(fitting, [""] * len(values))
    named = dict_or_empty(hint_of(keywords).get("option_titles"))
    options = [
        SchemaOption(
            value,
            str(named.get(as_text(value)) or (isinstance(title, str) and title) or label_of(value)),
        )
        for value, title in zip(values, titles, strict=True)
    ]
    return _distinct(options)


def _distinct(options: list[SchemaOption]) -> tuple[SchemaOption, ...]:
    return tuple({equality_key(each.value): each for each in reversed(options)}.values())[::-1]


def label_of(value: Json) -> str:
    """A value as a person reads it if it has no title."""
    if value is None or value == "":
        return text_for("no_value") if value is None else text_for("empty")
    if isinstance(value, bool):
        return text_for("yes") if value else text_for("no")
    is_blank = isinstance(value, str) and value.isspace()
    return dumps(value) if is_blank else as_text(value, limit=120)


_SIMPLE: dict[str, Shape] = {
    "boolean": "bool", "integer": "int", "number": "num", "string": "text", "null": "null",
}  # fmt: skip
_TEXT_WORDS = {"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}
_NUMBER_WORDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}


def _by_type(keywords: Keywords) -> Shape:
    name = keywords.get("type")
    if isinstance(name, list):
        return "union" if 1 < len(set(map(str, name))) < 6 else "json"
    if name is None:
        name = _implied(keywords)
    if name == "object":
        return _object_shape(keywords)
    if name == "array":
        first = keywords.get("prefixItems", keywords.get("items"))
        return "tuple" if isinstance(first, list) and first else "list"
    return _SIMPLE.get(name, "json") if isinstance(name, str) else "json"


def _implied(keywords: Keywords) -> str | None:
    """The type that keywords imply if none is named."""
    if isinstance(keywords.get("properties"), dict) or "patternProperties" in keywords:
        return "object"
    if isinstance(keywords.get("additionalProperties"), dict):
        return "object"
    if "prefixItems" in keywords or "items" in keywords:
        return "array"
    if set(keywords) & _TEXT_WORDS:
        return "string"
    return "number" if set(keywords) & _NUMBER_WORDS else None


def _object_shape(keywords: Keywords) -> Shape:
    if has_fields(keywords) or keywords.get("additionalProperties") is False:
        return "object"
    invites = keywords.get("additionalProperties") or keywords.get("patternProperties")
    if isinstance(keywords.get("properties"), dict) and not invites:
        return "object"
    conditional = {"if", "dependentSchemas", "dependencies"} & set(keywords)
    return "object" if conditional and not invites else "map"


def _with_base(folded: _Folded) -> Branches:
    """The branches of a union, each with the keywords beside the list."""
    keywords = folded.keywords
    types = keywords.get("type")
    if not folded.branches and isinstance(types, list):
        rest = {key: value for key, value in keywords.items() if key not in _OF_FIELD}
        return tuple((index, {**rest, "type": name}) for index, name in enumerate(types))
    skip = {folded.union_keyword, *_OF_FIELD, *_OF_DOCUMENT}
    base = {key: value for key, value in keywords.items() if key not in skip}
    if not base or set(base) <= {SHAPE_TITLE}:
        return folded.branches
    return tuple((index, {"allOf": [base, schema]}) for index, schema in folded.branches)


def suits(shape: Shape, value: Json) -> bool:
    """Whether a control of this shape can show a value unchanged."""
    if shape in ("list", "tuple"):
        return isinstance(value, list)
    if shape in ("object", "map"):
        return isinstance(value, dict)
    if shape in ("int", "num"):
        return is_number(value)
    if shape == "bool":
        return isinstance(value, bool)
    if shape in ("text", "open_choice"):
        return isinstance(value, str)
    return shape != "decimal" or is_number(value) or isinstance(value, str)
