"""Validation of bare schemas by jsonschema, with errors in sentences that repeat no input.

This module loads ``jsonschema``, which is slow. Import this module only when a bare schema is validated.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from types import FunctionType
from typing import Any, cast
from uuid import UUID

from .iri_syntax import built_on_use

with built_on_use():
    from jsonschema import Draft201909Validator, Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from jsonschema.validators import validator_for as class_for
from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticError
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

from nbagent.forms.schema.match import TYPES
from nbagent.forms.schema.patterns import MAX_TOTAL, is_balanced, matches, weight_of
from nbagent.forms.schema.refs import DATA, REFS, Refs
from nbagent.forms.texts import counted_text, text_for
from nbagent.forms.values import Json, as_text, children, dict_or_empty, equality_key, everything_in

from .parts import Part
from .place import Complaint, at_path, join_reasons
from .repair import repaired

_Errors = Iterator[ValidationError]
_Keyword = Callable[[Any, Any, Json, Json], _Errors]

MAX_RULES = 5_000
"""Schemas that one place of a document may be checked against: a small schema can expand to very many."""
MAX_TRIED = 20_000
"""Schemas of unions that a document may be checked against, in addition to ``TRIED_EACH`` for each of its parts."""
TRIED_EACH = 5
MAX_NAMED = 100
"""Patterns for the names of one object, because each name is searched for each pattern."""
MAX_PARTS = 50_000
"""The maximum number of objects, lists and values in a schema; the longest published one has 4,310."""
_OF_SCHEMAS = FormatChecker(formats=())
"""Checks of the formats in a schema itself: jsonschema's own check passes patterns to Python's ``re``."""
_OF_SCHEMAS.checks("regex")(is_balanced)
_TYPES: dict[str, Any] = {
    "date": datetime.date,
    "date-time": datetime.datetime,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": UUID,
}
_UNIONS = ("allOf", "anyOf", "oneOf")
_SEVERAL = (*_UNIONS, "dependentSchemas")
_SINGLE = ("not", "if", "then", "else")
"""Keywords whose schemas apply to the same value."""
_MISSING = ("required", "dependentRequired", "dependencies")
"""Keywords whose errors are about missing properties."""


@cache
def _formats() -> FormatChecker:
    """A checker of the formats that pydantic writes for its types, as pydantic checks them."""
    checker = FormatChecker(formats=())
    for name, type_ in _TYPES.items():
        check = TypeAdapter(type_).validate_python

        def fits(value: object, check: Callable[[object], object] = check) -> bool:
            return not isinstance(value, str) or check(value) is not None

        checker.checks(name, raises=PydanticError)(fits)
    return checker


def validator_for(schema: Json, *, formats: bool = False) -> Callable[[Json], _Errors]:
    """A function that finds the errors of a document; references to other documents are not loaded.

    Raises:
        TooCostly: checking would not end in reasonable time; also raised while the errors are found.
    """
    _refuse_if_costly(schema)
    checker, left = _formats() if formats else None, [0]
    validator = _validator_class(schema, left)(
        repaired(schema), registry=EMPTY_REGISTRY, format_checker=checker
    )

    def find_errors(document: Json) -> _Errors:
        left[0] = MAX_TRIED + TRIED_EACH * sum(1 for _ in everything_in(document))
        errors: _Errors = validator.iter_errors(document)
        return errors

    return find_errors


def _validator_class(schema: Json, left: list[int]) -> Any:
    """A validator class for the draft that a schema names, else for the draft whose notation the schema uses.

    ``left`` has the number of schemas of unions that may still be tried.
    """
    kind: Any = Draft201909Validator if _writes_old_tuples(schema) else Draft202012Validator
    if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
        kind = class_for(schema, default=kind)
    keywords: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "enum": _enum(),
    }
    if "multipleOf" in kind.VALIDATORS:
        keywords["multipleOf"] = _multiple_of
    if kind is Draft202012Validator:
        keywords |= {"items": _items, "additionalItems": _additional_items}
    if "unevaluatedProperties" in kind.VALIDATORS:
        keywords["unevaluatedProperties"] = _searching(kind.VALIDATORS["unevaluatedProperties"])
    limited = partial(_limited, left)
    for words, change in ((REFS, _follows), (_MISSING, _once), (_UNIONS, limited)):
        keywords |= {
            word: change(kind.VALIDATORS[word]) for word in words if word in kind.VALIDATORS
        }
    return extend(kind, keywords)  # type: ignore[no-untyped-call]


def _writes_old_tuples(schema: Json) -> bool:
    """Whether tuples are lists in ``items``, as before 2020-12, and no keyword of 2020-12 is used."""
    parts = [item for item in everything_in(schema) if isinstance(item, dict)]
    is_new = any("prefixItems" in item or "$dynamicRef" in item for item in parts)
    return not is_new and any(isinstance(item.get("items"), list) for item in parts)


def _follows(follow: _Keyword) -> _Keyword:
    """A reference keyword that ignores references out of the document or in a circle."""
    going: set[tuple[int, str, str, int]] = set()

    def keyword(validator: Any, ref: Any, document: Json, schema: Json) -> _Errors:
        base = validator._resolver._base_uri  # noqa: SLF001 - what a reference is relative to
        here = (threading.get_ident(), base, str(ref), id(document))
        if here in going:
            return
        going.add(here)
        try:
            yield from follow(validator, ref, document, schema)
        except Unresolvable:
            return
        finally:
            going.discard(here)

    return keyword


def _once(keyword: _Keyword) -> _Keyword:
    """A keyword with one error about all missing properties of an object; jsonschema has one for each of them."""

    def first(validator: Any, rule: Json, document: Json, schema: Json) -> _Errors:
        is_known = False
        for error in keyword(validator, rule, document, schema):
            is_own = not error.schema_path  # not that of a schema in the rule
            if not (is_own and is_known):
                yield error
            is_known |= is_own

    return first


def _limited(left: list[int], keyword: _Keyword) -> _Keyword:
    """A union's keyword that raises TooCostly if too many schemas are tried for one document."""

    def limited(validator: Any, rules: list[Json], document: Json, schema: Json) -> _Errors:
        left[0] -= len(rules)
        if left[0] < 0:
            raise TooCostly("it has too many parts for a schema with so many alternatives")
        yield from keyword(validator, rules, document, schema)

    return limited


def _items(validator: Any, items: Any, document: Json, schema: Json) -> _Errors:
    """The keyword ``items`` of 2020-12; a list, which is a tuple in older drafts, is checked as in 2019-09."""
    kind: Any = Draft201909Validator if isinstance(items, list) else Draft202012Validator
    yield from kind.VALIDATORS["items"](validator, items, document, schema)


def _additional_items(validator: Any, rule: Json, document: Json, schema: Json) -> _Errors:
    if isinstance(schema.get("items"), list):
        kind: Any = Draft201909Validator
        yield from kind.VALIDATORS["additionalItems"](validator, rule, document, schema)


def _unique_items(_validator: Any, unique: Json, items: Json, _schema: Json) -> _Errors:
    """The keyword ``uniqueItems``; jsonschema's own version is slow, because it compares all pairs of items."""
    if (
        unique is True
        and isinstance(items, list)
        and len(set(map(equality_key, items))) < len(items)
    ):
        yield ValidationError("has a duplicate item")


def _enum() -> _Keyword:
    """The keyword ``enum``; jsonschema's own version is slow, because it compares a value with each option."""
    known: dict[int, set[Hashable]] = {}

    def keyword(_validator: Any, options: list[Json], value: Json, _schema: Json) -> _Errors:
        keys = known.get(id(options))
        if keys is None:
            keys = known[id(options)] = set(map(equality_key, options))
        if equality_key(value) not in keys:
            yield ValidationError("is none of the options")

    return keyword


def _multiple_of(_validator: Any, step: float, number: Json, _schema: Json) -> _Errors:
    """The keyword ``multipleOf``; jsonschema's own version divides floats, so that 19.99 is no multiple of 0.01."""
    if not TYPES["number"](number):
        return
    if number - number or Fraction(repr(number)) % Fraction(repr(step)):  # the first if infinite
        yield ValidationError("is not a multiple")


def _pattern(_validator: Any, pattern: str, text: Json, _schema: Json) -> _Errors:
    if isinstance(text, str) and matches(pattern, text) is False:
        yield ValidationError("does not match")


def _pattern_properties(
    validator: Any, rules: dict[str, Json], document: Json, _schema: Json
) -> _Errors:
    for pattern, rule in rules.items():
        for key, value in document.items() if isinstance(document, dict) else ():
            if matches(pattern, key):
                yield from validator.descend(value, rule, path=key, schema_path=pattern)


def _additional_properties(validator: Any, rule: Json, document: Json, schema: Json) -> _Errors:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in document.items() if isinstance(document, dict) else ():
        if key in known or any(matches(pattern, key) is not False for pattern in patterns):
            continue
        if rule is False:
            yield ValidationError("not expected", path=(key,))
        else:
            yield from validator.descend(value, rule, path=key)


class _Search:
    """A replacement of ``re`` in a module of jsonschema."""

    @staticmethod
    def search(pattern: str, text: str) -> bool:
        """Whether a name may match a pattern; True if the pattern cannot be searched."""
        return matches(pattern, text) is not False


@cache
def _searching(keyword: Any) -> _Keyword:
    """A copy of a jsonschema keyword and its helper function that search with ``matches`` instead of ``re``."""
    finds: Any = keyword.__globals__.get(_FINDS) or keyword.__globals__["_utils"].__dict__[_FINDS]
    patched_globals = {**finds.__globals__, "re": _Search}
    patched_globals[_FINDS] = FunctionType(finds.__code__, patched_globals)
    made: _Keyword = FunctionType(keyword.__code__, {**keyword.__globals__, **patched_globals})
    return made


_FINDS = "find_evaluated_property_keys_by_schema"


class TooCostly(ValueError):
    """Checking against this schema would not end in reasonable time."""


def _refuse_if_costly(schema: Json) -> None:
    """Raise TooCostly if one value has more than ``MAX_RULES`` schemas to check, or patterns are too heavy."""
    named = (
        item.get("patternProperties") for item in everything_in(schema) if isinstance(item, dict)
    )
    if weight_of(schema) > MAX_TOTAL or any(len(dict_or_empty(each)) > MAX_NAMED for each in named):
        raise TooCostly("the patterns are too many or too long")
    refs, known = Refs(schema), dict[int, int]()
    if any(_count_rules(item, refs, known) > MAX_RULES for item in everything_in(schema)):
        raise TooCostly("the schema expands to too many rules")


def _count_rules(schema: Json, refs: Refs, known: dict[int, int]) -> int:
    """The number of schemas that apply to the same value; the validator follows a circle once."""
    if not isinstance(schema, dict):
        return 1
    if id(schema) not in known:
        parts = [part for word in _SEVERAL for part in children(schema.get(word))]
        parts += [schema[word] for word in _SINGLE if word in schema]
        ref = refs.ref_of(schema)
        if ref:
            parts.append(refs.target(ref))
        known[id(schema)] = 1 + len(parts)
        known[id(schema)] = 1 + sum(_count_rules(part, refs, known) for part in parts)
    return known[id(schema)]


def errors_of(schema: Json, document: Json, *, formats: bool = False) -> list[dict[str, Any]]:
    """The errors of a document under a schema: ``loc`` and ``msg``, which repeats no value of the document.

    ``formats``: whether formats such as dates are checked, for schemas that were made from a type.
    """
    find_errors = validator_for(schema, formats=formats)
    try:
        return [each for error in find_errors(document) for each in _error_dicts(error)]
    except TooCostly as error:
        return [{"loc": (), "msg": text_for("not_checked", problem=str(error))}]


def _error_dicts(error: ValidationError) -> Iterator[dict[str, Any]]:
    path, missing = tuple(error.absolute_path), _missing(error)
    nearest = best_match([error]) if error.validator in ("anyOf", "oneOf") else error
    if missing:
        yield from ({"loc": (*path, *name), "msg": text_for("required")} for name in missing)
    elif nearest is None or nearest is error:
        yield {"loc": path, "msg": _sentence(error)}
    else:
        yield from _error_dicts(nearest)


def misfit(schema: Json, *, as_input: bool = False) -> str:
    """The reason why a schema cannot be used, in words; empty if it can. The values of an input must be objects."""
    if not isinstance(schema, dict):
        return "it is not an object"
    if sum(1 for _ in everything_in(schema)) > MAX_PARTS:
        return f"it has over {MAX_PARTS:,} parts"
    try:
        _validator_class(schema, []).check_schema(schema, format_checker=_OF_SCHEMAS)
        _refuse_if_costly(schema)
    except SchemaError as error:
        return f"{error.json_path}: {error.message:.300}"
    except (TooCostly, RecursionError) as error:
        return str(error)
    refs = Refs(schema)
    outside = next(_outside(schema, refs), None)
    if outside is not None:
        return f"it refers to {outside!r:.200}, which is not in the schema, and nbagent loads nothing from outside"
    kind = refs.flatten(schema).keywords.get("type", "object")
    if as_input and kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return f'the input must be an object, and this schema has type {kind!r:.80}. Use "type": "object"'
    return ""


def _outside(schema: Json, refs: Refs) -> Iterator[str]:
    """The references in a schema whose target is not in the schema."""
    todo = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            ref = refs.ref_of(item)
            if ref and refs.target(ref) is None:
                yield next(item[word] for word in REFS if isinstance(item.get(word), str))
            todo.extend(each for key, each in item.items() if key not in DATA)
        elif isinstance(item, list):
            todo.extend(item)


def complaints_of(error: ValidationError, part: Part) -> Iterator[Complaint]:
    """An error of a document as complaints, each at the deepest place that explains the error."""
    path = tuple(error.absolute_path)
    missing = _missing(error)
    if error.validator in ("anyOf", "oneOf") and error.context:
        yield from _of_branches(error, part)
    elif missing:
        yield from (Complaint((*path, *name), text_for("answer")) for name in missing)
    elif error.validator == "additionalProperties":
        yield Complaint(path, text_for("extra", name=path[-1]))
    elif "propertyNames" in list(error.absolute_schema_path)[:-1] and isinstance(
        error.instance, str
    ):
        yield Complaint((*path, error.instance), text_for("wrong_name", problem=_sentence(error)))
    else:
        yield Complaint(path, _sentence(error))


def _missing(error: ValidationError) -> list[tuple[str, ...]]:
    """The missing properties of an object, as paths from the error's place."""
    document: Json = error.instance
    rule: Json = error.validator_value
    if error.validator == "required":
        return [(name,) for name in rule if name not in document] if rule is not True else [()]
    if error.validator not in _MISSING:
        return []
    return [
        (name,)
        for source, names in rule.items()
        if source in document and isinstance(names, list)
        for name in names
        if name not in document
    ]


def _of_branches(error: ValidationError, part: Part) -> Iterator[Complaint]:
    """The errors of a union: those of the answered branch, else those of the branch that fits best."""
    here = at_path(part, list(error.absolute_path))
    raw = here.raw if here is not None else None
    own_errors = [
        each for each in error.context or () if raw is not None and _branch_index(each) == raw
    ]
    if own_errors:
        found = [complaint for each in own_errors for complaint in complaints_of(each, part)]
        yield from (
            replace(each, why=each.why or _other_branches(error, here)) for each in found[:1]
        )
        yield from found[1:]
        return
    nearest = best_match([error])
    if nearest is None or nearest is error:
        yield Complaint(tuple(error.absolute_path), _sentence(error))
    else:
        yield from complaints_of(nearest, part)


def _branch_index(error: ValidationError) -> Any:
    """The index of the union branch that an error belongs to."""
    return next(iter(error.schema_path), None)


def _other_branches(error: ValidationError, part: Part | None) -> str:
    """The messages of the branches that were not picked."""
    known = getattr(part.node, "branches", ()) if part is not None else ()
    labels = {branch.raw: branch.label for branch in known}
    reasons: dict[str, list[str]] = {}
    for each in error.context or ():
        index = _branch_index(each)
        if part is not None and index != part.raw and index in labels:
            reasons.setdefault(labels[index], []).append(_sentence(each))
    return join_reasons(reasons)


_COUNTED = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_WITH_LIMIT = (
    "const", "enum", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "uniqueItems", "oneOf", "anyOf", "contains", "not",
)  # fmt: skip
_SAME_SENTENCE = {
    "additionalProperties": "extra_names",
    "unevaluatedProperties": "extra_names",
    "additionalItems": "extra_items",
    "unevaluatedItems": "extra_items",
    "divisibleBy": "wrong_multipleOf",
}


def _sentence(error: ValidationError) -> str:
    """The error in words, by the schema's keyword and limit; the input is never repeated."""
    word, limit = str(error.validator), cast("Json", error.validator_value)
    if word == "type":
        return text_for("wrong_type", types=_types(limit))
    listed = ", ".join(map(as_text, limit[:12])) if isinstance(limit, list) else limit
    bounded = as_text(listed, limit=300)
    if word in _COUNTED:
        return counted_text(f"wrong_{word}", limit, limit=bounded)
    known = f"wrong_{word}" if word in _WITH_LIMIT and limit != {} else "wrong"
    return text_for(_SAME_SENTENCE.get(word, known), limit=bounded)


def _types(limit: Json) -> str:
    names = limit if isinstance(limit, list) else [limit]
    named = [text_for(f"type_{name}") if name in TYPES else as_text(name) for name in names]
    return text_for("or").join(named)
