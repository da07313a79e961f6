"""The kind of a schema, decided before a node is built; null in a union becomes a flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nbagent.forms.hints import HINT_KEY
from nbagent.forms.texts import text_for
from nbagent.forms.values import Json, as_text, dict_or_empty, equality_key, is_number

from .refs import NOTES, SHAPE_TITLE, Keywords, Refs, merge

Shape = Literal[
    "json", "const", "choice", "open_choice", "union", "decimal", "bool", "int", "num", "text",
    "null", "list", "tuple", "object", "map",
]  # fmt: skip

MAX_OPTIONS = 2_000
_OF_FIELD = (
    "title", "description", "default", "examples", "deprecated", "readOnly", HINT_KEY, NOTES,
)  # fmt: skip
"""Keywords about the field and not about the branches of its union."""

Branches = tuple[tuple[int, Json], ...]
"""The shapes of a union that are not null: index in the schema's own list, and schema."""


@dataclass(frozen=True)
class Option:
    """An option of a choice. The ``value`` stays in the kernel; the front end sends the option's index."""

    value: Json
    label: str
    help: str = ""


@dataclass(frozen=True)
class SchemaInfo:
    """The kind of a schema: its shape, its keywords with references followed, and whether it takes null."""

    shape: Shape
    words: Keywords
    nullable: bool
    refs: frozenset[str]
    branches: Branches = ()
    options: tuple[Option, ...] = ()


@dataclass
class _Folded:
    """A schema whose null is being replaced by a flag; ``word`` is the keyword that has the ``branches``."""

    words: Keywords
    refs: frozenset[str]
    nullable: bool = False
    word: str = ""
    branches: Branches = ()


def notes(words: Keywords) -> dict[str, Any]:
    """The notes of the schema generator, or of ``Refs``."""
    return dict_or_empty(words.get(NOTES))


def hint_of(words: Keywords) -> dict[str, Json]:
    """The form hints of a schema."""
    return dict_or_empty(words.get(HINT_KEY))


def text_of(words: Keywords, keyword: str) -> str:
    """The text of a keyword such as ``title``; empty if there is none."""
    text = words.get(keyword)
    return text.strip() if isinstance(text, str) else ""


def schema_info(refs: Refs, schema: Json) -> SchemaInfo:
    """Follow references, replace null by a flag, and decide the kind of the rest."""
    flat = refs.flatten(schema)
    folded = _Folded(flat.words, flat.refs)
    for _ in range(8):  # for an Optional of an alias of an Optional …
        if not _fold_once(refs, folded):
            break
    shape, options = _decide(refs, folded)
    branches = _with_base(folded) if shape == "union" else ()
    return SchemaInfo(shape, folded.words, folded.nullable, folded.refs, branches, options)


def _fold_once(refs: Refs, folded: _Folded) -> bool:
    """Remove one null, or a list of one branch; return whether there may be more to do."""
    words = folded.words
    types = words.get("type")
    if isinstance(types, list):
        rest = [name for name in types if name != "null"]
        folded.nullable |= 0 < len(rest) < len(types)
        kept = rest[0] if len(rest) == 1 else (rest or "null")
        folded.words = {**words, "type": kept}
        words = folded.words
    for word in ("anyOf", "oneOf"):
        listed = words.get(word)
        if not isinstance(listed, list) or not listed:
            continue
        branches = tuple(
            (index, each) for index, each in enumerate(listed) if not _is_null(refs, each)
        )
        folded.nullable |= 0 < len(branches) < len(listed)
        folded.word, folded.branches = word, branches
        if len(branches) == 1 and not has_fields(words):
            _take_only(refs, folded)
            return True
        return False
    return False


def _take_only(refs: Refs, folded: _Folded) -> None:
    flat = refs.flatten(folded.branches[0][1])
    rest = {key: value for key, value in folded.words.items() if key != folded.word}
    folded.words = merge(flat.words, rest)
    folded.refs |= flat.refs
    folded.word, folded.branches = "", ()


def _is_null(refs: Refs, schema: Json) -> bool:
    if not isinstance(schema, dict):
        return False
    words = refs.flatten(schema).words
    return words.get("type") == "null" or ("const" in words and words["const"] is None)


def has_fields(words: Keywords) -> bool:
    """Whether a schema names properties itself."""
    return bool(dict_or_empty(words.get("properties")))


def _decide(refs: Refs, folded: _Folded) -> tuple[Shape, tuple[Option, ...]]:
    words, branches = folded.words, folded.branches
    if "reason" in notes(words):
        return "json", ()
    if notes(words).get("kind") == "decimal":
        return "decimal", ()
    options = _options(refs, words, branches)
    if options:
        return ("const" if len(options) == 1 and not branches else "choice"), options
    if has_fields(words) or not branches:
        return _by_type(words), ()
    return _of_branches(refs, words, branches)


def _of_branches(
    refs: Refs, words: Keywords, branches: Branches
) -> tuple[Shape, tuple[Option, ...]]:
    inner = [refs.flatten(schema).words for _, schema in branches]
    if words.get("type") in ("string", "integer", "number", "boolean"):
        named = _named_texts(refs, inner) if words["type"] == "string" else ()
        return ("open_choice" if named else _by_type(words)), named
    if len(inner) != 2:
        return "union", ()
    types = [each.get("type") for each in inner]
    if sorted(map(str, types)) == ["integer", "number"] and not any("enum" in x for x in inner):
        return "num", ()
    for one, other in (inner, inner[::-1]):
        options = _options(refs, one, ())
        free = other.get("type") == "string" and not _constrained(other)
        if free and options and all(isinstance(each.value, str) for each in options):
            return "open_choice", options
        if free and one.get("type") == "number" and not set(one) & {"enum", "const"}:
            return "decimal", ()
    return "union", ()


def _named_texts(refs: Refs, branches: list[Keywords]) -> tuple[Option, ...]:
    """The text options that some branches list; a person can also type other text."""
    found = [option for each in branches for option in _options(refs, each, ())]
    return _distinct([option for option in found if isinstance(option.value, str)])


def _constrained(words: Keywords) -> bool:
    """Whether a text has constraints; pydantic's look-ahead for Decimals does not count."""
    pattern = words.get("pattern")
    if isinstance(pattern, str) and not pattern.startswith("^(?!^[-+.]*$)"):
        return True
    return bool(set(words) & {"enum", "const", "format", "minLength", "maxLength"})


def _options(refs: Refs, words: Keywords, branches: Branches) -> tuple[Option, ...]:
    """The options of a schema that has only options; otherwise empty."""
    if "const" in words:
        return (_const_option(words, ""),)
    listed = words.get("enum")
    if isinstance(listed, list) and 0 < len(listed) <= MAX_OPTIONS:
        return _listed(words, listed)
    found: list[Option] = []
    for _, schema in branches if not has_fields(words) else ():
        inner = refs.flatten(schema).words
        if "const" in inner:
            found.append(_const_option(inner, text_of(inner, "description")))
        elif isinstance(inner.get("enum"), list) and inner["enum"]:
            found.extend(_listed(inner, inner["enum"]))
        else:
            return ()
    return _distinct(found)


def _const_option(words: Keywords, help_: str) -> Option:
    return Option(words["const"], text_of(words, "title") or label_of(words["const"]), help_)


def _listed(words: Keywords, values: list[Json]) -> tuple[Option, ...]:
    titles = _titles(words, len(values))
    named = dict_or_empty(hint_of(words).get("option_titles"))
    options = [
        Option(value, str(named.get(as_text(value)) or title or label_of(value)))
        for value, title in zip(values, titles, strict=True)
    ]
    return _distinct(options)


def _titles(words: Keywords, count: int) -> list[str]:
    """Titles of enum values: the members' names, or the value of a keyword of other form libraries."""
    for found in (notes(words).get("titles"), words.get("enumNames"), words.get("x-enumTitles")):
        if isinstance(found, list) and len(found) == count:
            return [title if isinstance(title, str) else "" for title in found]
    return [""] * count


def _distinct(options: list[Option]) -> tuple[Option, ...]:
    return tuple({equality_key(each.value): each for each in reversed(options)}.values())[::-1]


def label_of(value: Json, *, limit: int | None = 120) -> str:
    """A value as a person reads it if it has no title."""
    if value is None or value == "":
        return text_for("no_value") if value is None else text_for("empty")
    if isinstance(value, bool):
        return text_for("yes") if value else text_for("no")
    return as_text(value, limit=limit)


_SIMPLE: dict[str, Shape] = {
    "boolean": "bool", "integer": "int", "number": "num", "string": "text", "null": "null",
}  # fmt: skip
_TEXT_WORDS = {"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}
_NUMBER_WORDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}


def _by_type(words: Keywords) -> Shape:
    name = words.get("type")
    if isinstance(name, list):
        return "union" if 1 < len(set(map(str, name))) < 6 else "json"
    if name is None:
        name = _implied(words)
    if name == "object":
        return _object_shape(words)
    if name == "array":
        first = words.get("prefixItems", words.get("items"))
        return "tuple" if isinstance(first, list) and first else "list"
    return _SIMPLE.get(name, "json") if isinstance(name, str) else "json"


def _implied(words: Keywords) -> str | None:
    """The type that keywords imply if none is named."""
    if isinstance(words.get("properties"), dict) or "patternProperties" in words:
        return "object"
    if isinstance(words.get("additionalProperties"), dict):
        return "object"
    if "prefixItems" in words or "items" in words:
        return "array"
    if set(words) & _TEXT_WORDS:
        return "string"
    return "number" if set(words) & _NUMBER_WORDS else None


def _object_shape(words: Keywords) -> Shape:
    if has_fields(words) or words.get("additionalProperties") is False:
        return "object"
    invites = words.get("additionalProperties") or words.get("patternProperties")
    if isinstance(words.get("properties"), dict) and not invites:
        return "object"
    conditional = {"if", "dependentSchemas", "dependencies"} & set(words)
    return "object" if conditional and not invites else "map"


def _with_base(folded: _Folded) -> Branches:
    """The branches of a union, each with the keywords beside the list."""
    words = folded.words
    types = words.get("type")
    if not folded.branches and isinstance(types, list):
        rest = {key: value for key, value in words.items() if key not in _OF_FIELD}
        return tuple((index, {**rest, "type": name}) for index, name in enumerate(types))
    skip = {*_OF_FIELD, folded.word, "discriminator", "$defs", "definitions", "$schema", "$id"}
    base = {key: value for key, value in words.items() if key not in skip}
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
