"""Functions that read a schema's keywords: the fields of an object, labels, limits, tags."""

from __future__ import annotations

import math
from collections.abc import Mapping

from nbagent.forms.texts import counted_text, text_for
from nbagent.forms.values import Json, as_text, dict_or_empty, list_or_empty

from .patterns import matches
from .refs import SHAPE_TITLE, Keywords, Refs
from .shape import has_fields, notes, text_of

_LIMITS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


def escaped(key: str) -> str:
    """A property name as a step of a field id."""
    for character, code in (("~", "~0"), ("/", "~1"), ("|", "~2"), ("*", "~3"), ("+", "~4")):
        key = key.replace(character, code)
    return key


def object_fields(refs: Refs, keywords: Keywords) -> dict[str, Json]:
    """Every named field of an object: its own fields, then the fields of conditions and branches."""
    fields = dict(dict_or_empty(keywords.get("properties")))
    variants: dict[str, list[Json]] = {}
    for part in _conditional_parts(keywords):
        for key, schema in _named(refs, part).items():
            found = variants.setdefault(key, [])
            if schema not in found:
                found.append(schema)
    for key, found in variants.items():
        fields.setdefault(key, found[0] if len(found) == 1 else {"anyOf": found})
    return {key: schema for key, schema in fields.items() if schema is not False}


def _named(refs: Refs, schema: Json) -> dict[str, Json]:
    flat = refs.flatten(schema).keywords
    found = dict(dict_or_empty(flat.get("properties")))
    for part in _conditional_parts(flat):
        for key, value in dict_or_empty(refs.flatten(part).keywords.get("properties")).items():
            found.setdefault(key, value)
    return {key: value for key, value in found.items() if value not in (True, {})}


def _conditional_parts(keywords: Keywords) -> list[Json]:
    parts = [keywords.get(keyword) for keyword in ("then", "else")]
    for keyword in ("dependentSchemas", "dependencies"):
        parts += dict_or_empty(keywords.get(keyword)).values()
    for keyword in ("anyOf", "oneOf"):
        parts += list_or_empty(keywords.get(keyword))
    return [part for part in parts if isinstance(part, dict)]


def required_names(keywords: Keywords) -> frozenset[str]:
    """The names of an object's required fields."""
    return frozenset(_texts(keywords.get("required")))


def rest_schema(keywords: Keywords) -> Json:
    """The schema for new fields that an object's schema does not list."""
    rest = keywords.get("additionalProperties")
    if isinstance(rest, dict):
        return rest
    return next(iter(dict_or_empty(keywords.get("patternProperties")).values()), True)


def field_schema(keywords: Keywords, key: str) -> Json:
    """The schema for a field of a document that the object's schema does not list."""
    for pattern, schema in dict_or_empty(keywords.get("patternProperties")).items():
        if matches(pattern, key):
            return schema
    rest = keywords.get("additionalProperties")
    return rest if isinstance(rest, dict) else True


def invites_more(keywords: Keywords) -> bool:
    """Whether the schema of an object with fields explicitly allows further fields."""
    rest = keywords.get("additionalProperties")
    invites = rest is True or isinstance(rest, dict) or "patternProperties" in keywords
    return invites and has_fields(keywords)


def key_options(keywords: Keywords) -> tuple[str, ...]:
    """The names that a map may have, if they are listed."""
    return tuple(_texts(dict_or_empty(keywords.get("propertyNames")).get("enum")))


def _texts(listed: Json) -> list[str]:
    return [each for each in list_or_empty(listed) if isinstance(each, str)]


def label_from(keywords: Keywords, key: str) -> str:
    """The title of a field, else its name as words, else the title of its ``$ref`` target."""
    spaced = key.replace("_", " ").replace("-", " ").strip()
    name = spaced[:1].upper() + spaced[1:]
    return text_of(keywords, "title") or name or key or text_of(keywords, SHAPE_TITLE)


def limits_from(keywords: Keywords) -> dict[str, Json]:
    """Bounds under JSON Schema's names, including bounds that only the notes have; never a pattern."""
    found = {keyword: keywords[keyword] for keyword in _LIMITS if _is_limit(keywords.get(keyword))}
    return {**found, **dict_or_empty(notes(keywords).get("limits"))}


_BOUNDS = (
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", ""),
    ("minLength", "maxLength", "", "", "characters"),
    ("minItems", "maxItems", "", "", "items"),
    ("minProperties", "maxProperties", "", "", "names"),
)


def describe_limits(limits: Mapping[str, Json]) -> str:
    """Limits as a person reads them, such as ``1 - 7`` or ``at most 10 characters``."""
    if not limits:  # most fields have none
        return ""
    phrases: list[str] = []
    for low, high, above, under, unit in _BOUNDS:
        least, most = limits.get(low), limits.get(high)
        if least is not None and most is not None:
            both = text_for("between", least=as_text(least), most=as_text(most))
            phrases.append(_amount(as_text(least) if least == most else both, most, unit))
            continue
        for key, value in (("least", least), ("most", most)):
            if value is not None:
                phrases.append(text_for(key, limit=_amount(as_text(value), value, unit)))
        for key, name in (("above", above), ("under", under)):
            phrases += [text_for(key, limit=as_text(limits[name]))] if name in limits else []
    if "multipleOf" in limits:
        phrases.append(text_for("multiple", limit=as_text(limits["multipleOf"])))
    return ", ".join(phrases)


def _amount(amount: str, number: Json, unit: str) -> str:
    """A number with what it counts, such as ``1 item``."""
    return counted_text(unit, number, amount=amount) if unit else amount


def _is_limit(value: Json) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is True or (isinstance(value, int) and abs(value) < 10**300 and value is not False)


def tag_of(refs: Refs, keywords: Keywords, schemas: list[Json]) -> str:
    """The property that identifies the branches of a union, or an empty text."""
    name = dict_or_empty(keywords.get("discriminator")).get("propertyName")
    if isinstance(name, str):
        return name
    shared = [consts_of(refs, schema) for schema in schemas]
    for name in shared[0] if len(shared) > 1 else ():
        values = [each.get(name) for each in shared]
        if None not in values and len(set(values)) == len(values):
            return name
    return ""


def consts_of(refs: Refs, schema: Json) -> dict[str, str]:
    """The fields of a schema that can have only one value, each with its value as text."""
    found: dict[str, str] = {}
    for key, part in dict_or_empty(refs.flatten(schema).keywords.get("properties")).items():
        keywords = refs.flatten(part).keywords
        listed = [keywords["const"]] if "const" in keywords else list_or_empty(keywords.get("enum"))
        if len(listed) == 1:
            found[key] = as_text(listed[0])
    return found
