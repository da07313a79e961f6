"""Small readings of a schema's keywords: the fields of an object, labels, limits, tags."""

from __future__ import annotations

import math
from collections.abc import Mapping

from nbagent.forms.texts import say, say_counted
from nbagent.forms.values import Json, children, shown

from .patterns import found
from .refs import NAME, Refs, Words
from .shape import notes, own_fields

MAX_HELP = 2_000
MAX_LOOKED = 20_000
"""Parts of a schema in which secrets are looked for; a larger one is taken to have one."""
_CONDITIONS = ("then", "else")
_LIMITS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


def escaped(key: str) -> str:
    """A property name as a step of a field id."""
    for character, code in (("~", "~0"), ("/", "~1"), ("|", "~2"), ("*", "~3"), ("+", "~4")):
        key = key.replace(character, code)
    return key


def object_fields(refs: Refs, words: Words) -> dict[str, Json]:
    """Every named field: an object's own, then those that conditions and branches speak of."""
    own = words.get("properties")
    fields: dict[str, Json] = dict(own) if isinstance(own, dict) else {}
    variants: dict[str, list[Json]] = {}
    for part in _conditional_parts(words):
        for key, schema in _named(refs, part).items():
            found = variants.setdefault(key, [])
            if schema not in found:
                found.append(schema)
    for key, found in variants.items():
        fields.setdefault(key, found[0] if len(found) == 1 else {"anyOf": found})
    return {key: schema for key, schema in fields.items() if schema is not False}


def _named(refs: Refs, schema: Json) -> dict[str, Json]:
    flat = refs.flatten(schema).words
    own = flat.get("properties")
    found = dict(own) if isinstance(own, dict) else {}
    for part in _conditional_parts(flat):
        inner = refs.flatten(part).words.get("properties")
        for key, value in inner.items() if isinstance(inner, dict) else ():
            found.setdefault(key, value)
    return {key: value for key, value in found.items() if value not in (True, {})}


def _conditional_parts(words: Words) -> list[Json]:
    parts = [words[word] for word in _CONDITIONS if isinstance(words.get(word), dict)]
    for word in ("dependentSchemas", "dependencies"):
        found = words.get(word)
        parts += (
            [part for part in found.values() if isinstance(part, dict)]
            if isinstance(found, dict)
            else []
        )
    for word in ("anyOf", "oneOf"):
        found = words.get(word)
        parts += (
            [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []
        )
    return parts


def required_names(words: Words) -> frozenset[str]:
    """The names that must be there."""
    found = words.get("required")
    return (
        frozenset(each for each in found if isinstance(each, str))
        if isinstance(found, list)
        else frozenset()
    )


def rest_schema(words: Words) -> Json:
    """The schema of names that the schema does not list."""
    rest = words.get("additionalProperties")
    if isinstance(rest, dict):
        return rest
    patterns = words.get("patternProperties")
    return next(iter(patterns.values()), True) if isinstance(patterns, dict) else True


def field_schema(words: Words, key: str) -> Json:
    """The schema of a name that is there although it is not listed."""
    patterns = words.get("patternProperties")
    for pattern, schema in patterns.items() if isinstance(patterns, dict) else ():
        if found(pattern, key):
            return schema
    rest = words.get("additionalProperties")
    return rest if isinstance(rest, dict) else True


def invites_more(words: Words) -> bool:
    """Whether an object with fields says by itself that there may be others."""
    rest = words.get("additionalProperties")
    return own_fields(words) and (
        rest is True or isinstance(rest, dict) or "patternProperties" in words
    )


def key_options(words: Words) -> tuple[str, ...]:
    """The names that a map may have, where they are listed."""
    names = words.get("propertyNames")
    listed = names.get("enum") if isinstance(names, dict) else None
    return (
        tuple(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else ()
    )


def title_of(words: Words) -> str:
    """The field's own title, or an empty text."""
    title = words.get("title")
    return title.strip() if isinstance(title, str) else ""


def label_from(words: Words, key: str) -> str:
    """The title, else the name as words; the name of a ``$ref`` target only where there is neither."""
    title = title_of(words)
    if title:
        return title
    if key:
        spaced = key.replace("_", " ").replace("-", " ").strip()
        return spaced[:1].upper() + spaced[1:] if spaced else key
    return str(words.get(NAME, ""))


def help_from(words: Words) -> str:
    """The description, as text."""
    text = words.get("description")
    return text.strip()[:MAX_HELP] if isinstance(text, str) else ""


def limits_from(words: Words) -> dict[str, Json]:
    """Bounds as JSON Schema names them, the lost ones included; never a pattern."""
    found = {word: words[word] for word in _LIMITS if _is_limit(words.get(word))}
    noted = notes(words).get("limits")
    return {**found, **(noted if isinstance(noted, dict) else {})}


_BOUNDS = (
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", ""),
    ("minLength", "maxLength", "", "", "characters"),
    ("minItems", "maxItems", "", "", "items"),
    ("minProperties", "maxProperties", "", "", "names"),
)


def told_limits(limits: Mapping[str, Json]) -> str:
    """Limits as a person reads them, such as ``1 - 7`` or ``at most 10 characters``."""
    told: list[str] = []
    for low, high, above, under, unit in _BOUNDS:
        least, most = limits.get(low), limits.get(high)
        if least is not None and most is not None:
            both = say("between", least=shown(least), most=shown(most))
            told.append(_amount(shown(least) if least == most else both, most, unit))
            continue
        for key, value in (("least", least), ("most", most)):
            if value is not None:
                told.append(say(key, limit=_amount(shown(value), value, unit)))
        for key, name in (("above", above), ("under", under)):
            told += [say(key, limit=shown(limits[name]))] if name in limits else []
    if "multipleOf" in limits:
        told.append(say("multiple", limit=shown(limits["multipleOf"])))
    return ", ".join(told)


def _amount(amount: str, number: Json, unit: str) -> str:
    """A number with what it counts, such as ``1 item``."""
    return say_counted(unit, number, amount=amount) if unit else amount


def _is_limit(value: Json) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is True or (isinstance(value, int) and abs(value) < 10**300 and value is not False)


def is_secret(words: Words) -> bool:
    """Whether a field's value is not to be shown."""
    return words.get("format") == "password" or words.get("writeOnly") is True


def mentions_secret(refs: Refs, words: Words) -> bool:
    """Whether a secret field is anywhere inside."""
    todo: list[Json] = [words]
    followed: set[str] = set()
    for _ in range(MAX_LOOKED):
        if not todo:
            return False
        item = todo.pop()
        todo.extend(children(item))
        if isinstance(item, dict):
            if is_secret(item):
                return True
            ref = refs.ref_of(item)
            if ref and ref not in followed:
                followed.add(ref)
                todo.append(refs.target(ref))
    return True


def tag_of(refs: Refs, words: Words, schemas: list[Json]) -> str:
    """The property that tells the branches of a union apart, or an empty text."""
    discriminator = words.get("discriminator")
    if isinstance(discriminator, dict) and isinstance(
        name := discriminator.get("propertyName"), str
    ):
        return name
    shared: list[dict[str, str]] = [consts_of(refs, schema) for schema in schemas]
    for name in shared[0] if len(shared) > 1 else ():
        values = [each.get(name) for each in shared]
        if None not in values and len(set(values)) == len(values):
            return name
    return ""


def consts_of(refs: Refs, schema: Json) -> dict[str, str]:
    """The fields of a schema that can have but one value, each with that value as a text."""
    fields = refs.flatten(schema).words.get("properties")
    found: dict[str, str] = {}
    for key, part in fields.items() if isinstance(fields, dict) else ():
        words = refs.flatten(part).words
        listed = words.get("enum")
        if "const" in words:
            found[key] = shown(words["const"])
        elif isinstance(listed, list) and len(listed) == 1:
            found[key] = shown(listed[0])
    return found
