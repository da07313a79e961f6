"""Secrets: the secret parts of a value, and the mask that replaces them wherever the value is stored or shown.

A value is secret if pydantic marks it (``SecretStr``, ``SecretBytes``, ``Secret[T]``), or a schema does with
``writeOnly`` or ``format: password``. Events, messages and views contain the secret's mask. Only the mask object
has the secret, in the memory of the process that received it, until its call ends. Only the mask's text is
stored, sent or copied.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic.types import Secret
from pydantic_core import core_schema

from nbagent.core.hooks import hooks

from .messages import Json, canonical, freeze, jsonable, storable
from .pickling import Travels

T = TypeVar("T")
Path: TypeAlias = tuple[str | int, ...]

MASK = "**********"
"""Pydantic's text for a secret; nbagent's masks add ``#`` and eight random digits."""
_MASKS = re.compile(r"\*{10}(#[0-9a-f]{8})?")
_GONE: Any = object()
_SECRETS = (SecretStr, SecretBytes, Secret)
_VALUES = ("default", "const", "enum", "example", "examples")
"""Keywords of a schema whose values are not schemas."""


class Sealed(Travels, str):
    """The mask of one secret. The text is random; the object also has the secret, until ``forget``."""

    __slots__ = ("__weakref__", "_value")
    _value: Json

    def __new__(cls, value: Json) -> Sealed:
        """Make a mask for this value."""
        made = super().__new__(cls, f"{MASK}#{secrets.token_hex(4)}")
        made._value = value
        live_masks.add(made)
        return made

    @property
    def is_held(self) -> bool:
        """Whether the mask still has its secret."""
        return self._value is not _GONE

    def reveal(self) -> Json:
        """The secret."""
        return self._value

    def forget(self) -> None:
        """Forget the secret; the mask remains."""
        self._value = _GONE
        live_masks.discard(self)

    def __reduce_ex__(self, _protocol: object) -> tuple[Any, ...]:
        return (str, (str(self),))


live_masks: WeakSet[Sealed] = WeakSet()
"""The masks whose values are in memory."""


class SecretSchema(GenerateJsonSchema):
    """pydantic's JSON Schema, with ``Secret[T]`` as write-only, like ``SecretStr``."""

    def json_or_python_schema(self, schema: core_schema.JsonOrPythonSchema) -> JsonSchemaValue:
        """The schema of a type that JSON and Python serialize differently, such as pydantic's secrets."""
        words = super().json_or_python_schema(schema)
        function = schema.get("serialization", {}).get("function")
        is_secret = getattr(function, "__name__", "").startswith("_serialize_secret")
        return {**words, "writeOnly": True} if is_secret else words


# --- which parts are secret


def is_secret(schema: Mapping[str, Any]) -> bool:
    """Whether the values of a JSON Schema are secret as a whole."""
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def schema_has_secret(schema: Json) -> bool:
    """Whether values of a JSON Schema have a secret somewhere: write-only, or a password. All definitions count."""
    todo, seen = [schema], set()
    while todo:
        part = todo.pop()
        if isinstance(part, list | tuple):
            todo += part
        elif isinstance(part, Mapping) and id(part) not in seen:
            seen.add(id(part))
            if is_secret(part):
                return True
            todo += [value for key, value in part.items() if key not in _VALUES]
    return False


MAX_SCHEMAS = 20_000
"""The maximum number of schemas that are compared with one value: a wide union has thousands for each of its parts."""
USUAL_SCHEMAS = 20
"""The number of schemas for each part of a value that do not count."""


class Effort:
    """The number of schemas that may still be compared with one value."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_SCHEMAS


class SecretPlaces:
    """The secret places of one JSON Schema.

    In an object with secrets, a property that the schema does not name may be a secret under another name. To find
    such a secret, ``seal`` lets the type parse the value.
    """

    def __init__(self, schema: Json) -> None:
        self._root = schema

    @classmethod
    def of(cls, schema: Json) -> SecretPlaces | None:
        """The secret places of a schema; None if the schema has none."""
        return cls(schema) if schema_has_secret(schema) else None

    def seal(self, value: Json, *, like: Json = None, read: Callable[[], Json] = dict) -> Json:
        """The value with a mask in place of each secret; the mask has the secret in memory.

        Args:
            value: any JSON.
            like: a sealed value; a secret that this value has too gets the same mask.
            read: a function that returns the value as its type parses it, as JSON; it may raise if the value is
                not valid.
        """
        masks = {canonical(each.reveal()): each for each in _sealed_in(like)}

        known_secrets = cache(lambda: self._secrets_of(read))

        def seal(secret: Json, _path: Path) -> Json:
            if is_mask(secret):
                return secret
            key = canonical(secret)
            if key not in masks:
                masks[key] = Sealed(secret)
            return masks[key]

        def seal_unnamed(each: Json, path: Path) -> Json:
            return _seal_unnamed(each, path, known_secrets(), seal)

        return freeze(self._changed(value, seal, seal_unnamed, Effort()))

    def masked(self, value: Json) -> Json:
        """The value with pydantic's own mask for each secret, for display only."""
        return freeze(self._changed(value, lambda _secret, _path: MASK, _as_it_is, Effort()))

    def missing(self, value: Json) -> list[Path]:
        """The places of masks whose secrets this process does not have."""
        found: list[Path] = []

        def look(secret: Json, path: Path) -> Json:
            lost = any(is_mask(each) and not is_held(each) for each in _leaves(secret))
            return _noted(secret, path, found) if lost else secret

        self._changed(value, look, look, Effort())
        return found

    def _secrets_of(self, read: Callable[[], Json]) -> set[str] | None:
        """The secrets in the result of ``read``; None if they are not known, so that any part may be secret."""
        found, effort = list[str](), Effort()
        try:
            value = read()
        except Exception:  # the tool's validators may raise anything; then the value is not used
            return None
        self._changed(
            value, lambda each, _path: _noted(each, canonical(each), found), _as_it_is, effort
        )
        return None if effort.left < 0 else set(found)

    def _changed(
        self,
        value: Json,
        change: Callable[[Json, Path], Json],
        unnamed: Callable[[Json, Path], Json],
        effort: Effort,
    ) -> Json:
        """The value, with ``change`` applied to each secret, and ``unnamed`` to each part that no schema names.

        When the effort is used up, the rest of the value counts as secret.
        """

        def changed(value: Json, schemas: list[Json], path: Path) -> Json:
            effort.left += USUAL_SCHEMAS
            parts = list(self.parts(schemas, value, effort))
            if value in (None, "") or not any(id(part) in self._holders for part in parts):
                return value
            if any(map(is_secret, parts)):
                return change(value, path)

            def child(key: str | int, each: Json) -> Json:
                child_path = (*path, key)
                if effort.left < 0:
                    return each if each in (None, "") else change(each, child_path)
                inner = child_schemas(parts, key, effort)
                return changed(each, inner, child_path) if inner else unnamed(each, child_path)

            if isinstance(value, Mapping):
                return {key: child(key, each) for key, each in value.items()}
            if isinstance(value, list | tuple):
                return [child(index, each) for index, each in enumerate(value)]
            # a string in place of an object, such as its JSON, is secret as a whole
            return change(value, path) if isinstance(value, str) else value

        return changed(value, [self._root], ())

    def parts(
        self, schemas: Iterable[Json], value: Json, effort: Effort
    ) -> Iterator[Mapping[str, Any]]:
        """The schemas that apply to a value, including those of references and unions."""
        todo, seen = list(schemas), set()
        while todo:
            part = todo.pop()
            effort.left -= 1
            if not isinstance(part, Mapping) or id(part) in seen or _is_of_another(part, value):
                continue
            seen.add(id(part))
            yield part
            todo += [part[word] for word in ("if", "then", "else") if word in part]
            todo += [each for word in ("anyOf", "oneOf", "allOf") for each in part.get(word, ())]
            todo.append(self._target(part))

    def _target(self, part: Mapping[str, Any]) -> Json:
        ref = part.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#"):
            return None
        found = self._root
        for step in ref[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    @cached_property
    def _holders(self) -> set[int]:
        """The ``id`` of each schema whose values can contain a secret."""
        before: dict[int, list[int]] = {id(self._root): []}
        todo, found = [self._root], list[int]()
        while todo:
            part = todo.pop()
            inner: list[Json] = list(part) if isinstance(part, list | tuple) else []
            if isinstance(part, Mapping):
                found += [id(part)] if is_secret(part) else []
                inner = [each for key, each in part.items() if key not in (*_VALUES, "$defs")]
                inner.append(self._target(part))
            for each in inner:
                if isinstance(each, Mapping | list | tuple):
                    todo += [] if id(each) in before else [each]
                    before.setdefault(id(each), []).append(id(part))
        known = set[int]()
        while found:
            one = found.pop()
            if one not in known:
                known.add(one)
                found += before[one]
        return known


def _is_of_another(part: Mapping[str, Any], value: Json) -> bool:
    """Whether a tag shows that an object belongs to another schema of a union."""
    properties = part.get("properties")
    if not isinstance(properties, Mapping) or not isinstance(value, Mapping):
        return False
    tags = ((value[key], each) for key, each in properties.items() if key in value)
    return any(
        isinstance(each, Mapping) and "const" in each and each["const"] != tag for tag, each in tags
    )


def child_schemas(parts: Iterable[Mapping[str, Any]], key: str | int, effort: Effort) -> list[Json]:
    """The schemas of the value at this key or index."""
    found: list[Json] = []
    for part in parts:
        effort.left -= 1
        if isinstance(key, int):
            first = part.get("prefixItems", ())
            found += (
                [first[key]] if key < len(first) else [part["items"]] if "items" in part else []
            )
            continue
        own = [part["properties"][key]] if key in part.get("properties", {}) else []
        patterns = part.get("patternProperties", {})
        effort.left -= len(patterns)
        matched, may_match = _by_pattern(patterns, key)
        own += matched
        rest = part.get("additionalProperties")
        found += own or ([rest] if isinstance(rest, Mapping) else [])
        found += may_match
    return found


_SEARCHED = 100
"""Maximum number of patterns of one object that are searched for in a name."""


def _by_pattern(patterns: Mapping[str, Json], key: str) -> tuple[list[Json], list[Json]]:
    """The schemas whose pattern matches a name, and those whose pattern may match; both can make a value secret."""
    matched: list[Json] = []
    may_match: list[Json] = []
    for number, (pattern, each) in enumerate(patterns.items()):
        found = hooks.pattern_in(pattern, key) if number < _SEARCHED else None
        if found is not False:
            (matched if found else may_match).append(each)
    return matched, may_match


def _as_it_is(value: Json, _path: Path) -> Json:
    return value


def _noted(value: Json, note: T, notes: list[T]) -> Json:
    notes.append(note)
    return value


def _seal_unnamed(
    value: Json, path: Path, known_secrets: set[str] | None, seal: Callable[[Json, Path], Json]
) -> Json:
    if known_secrets is None or canonical(value) in known_secrets:
        return seal(value, path)
    if isinstance(value, Mapping):
        return {key: _seal_unnamed(each, path, known_secrets, seal) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_seal_unnamed(each, path, known_secrets, seal) for each in value]
    return value


# --- masks and values


def is_mask(value: Json) -> bool:
    """Whether a value is a mask of nbagent or pydantic."""
    return isinstance(value, str) and _MASKS.fullmatch(value) is not None


def has_secret(value: Json) -> bool:
    """Whether a value contains a mask that has its secret."""
    return any(map(is_held, _leaves(value)))


def is_held(value: Json) -> bool:
    """Whether a value is a mask that has its secret."""
    return isinstance(value, Sealed) and value.is_held


def has_missing_secrets(value: Json) -> bool:
    """Whether the value contains a mask of nbagent whose secret this process does not have."""
    return any(
        isinstance(each, str) and each != MASK and is_mask(each) and not is_held(each)
        for each in _leaves(value)
    )


def _leaves(value: Json) -> Iterator[Json]:
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            todo += item.values()
        elif isinstance(item, list | tuple):
            todo += item
        else:
            yield item


def _sealed_in(value: Json) -> Iterator[Sealed]:
    """The masks in a value that have their secrets."""
    return (each for each in _leaves(value) if is_held(each))


def _with_leaves(value: Json, change: Callable[[Json], Json]) -> Json:
    """The value, with ``change`` applied to everything in it that is no list or object."""
    if isinstance(value, Mapping):
        return {key: _with_leaves(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_leaves(each, change) for each in value]
    return change(value)


def revealed(value: Json) -> Json:
    """A sealed value with its secrets, for validation and for the body."""
    return _with_leaves(value, lambda each: each.reveal() if is_held(each) else each)


def prefilled(value: Json) -> Json:
    """A sealed value with its secrets, for a form. A mask without its secret becomes ``MASK``, for an empty field."""

    def shown_in_form(each: Json) -> Json:
        return each.reveal() if is_held(each) else MASK if is_mask(each) else each

    return _with_leaves(value, shown_in_form)


def release(*values: Json) -> None:
    """Forget the secrets in these values."""
    if live_masks:
        for mask in list(_sealed_in(values)):
            mask.forget()


def without_secrets(text: str, sealed: Json) -> str:
    """A text with pydantic's mask in place of the secrets of a sealed value."""
    secret_texts = {str(each.reveal()) for each in _sealed_in(sealed)}
    for secret in sorted(secret_texts, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


# --- Python values


def sealed_json(value: Any) -> Json:
    """A Python value as unchangeable JSON, with a mask for each secret.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    if value is None:
        return None
    plain = storable(jsonable(value))
    # without warnings, because they contain values
    python = _anything().dump_python(value, by_alias=True, warnings=False)
    sealed = _replace_masks(plain, python, Sealed)
    places = _places_of(value)
    return freeze(sealed) if places is None else places.seal(sealed)


def plain_json(value: Any) -> Json:
    """A Python value as JSON with its secrets in plain text, for validation only.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    return revealed(sealed_json(value))


def shown(sealed: Json) -> Json:
    """A sealed value for display, with pydantic's own mask for each secret, which does not contain the secret."""
    if not any(isinstance(each, Sealed) for each in _leaves(sealed)):
        return sealed
    return freeze(_with_leaves(sealed, lambda each: MASK if isinstance(each, Sealed) else each))


def _replace_masks(masked: Json, python: Any, replace: Callable[[Json], Json]) -> Json:
    """``masked`` with ``replace(secret)`` in place of each mask; ``python`` is the value with its secrets."""
    if isinstance(python, _SECRETS):
        plain = plain_json(python.get_secret_value())
        return plain if plain in (None, "") else replace(plain)
    if isinstance(masked, dict) and isinstance(python, Mapping) and len(masked) == len(python):
        pairs = zip(masked.items(), python.values(), strict=True)
        return {key: _replace_masks(each, own, replace) for (key, each), own in pairs}
    if isinstance(masked, list) and isinstance(python, list | tuple | set | frozenset):
        return [
            _replace_masks(each, own, replace) for each, own in zip(masked, python, strict=True)
        ]
    return python if isinstance(python, Sealed) else masked


@cache
def _anything() -> TypeAdapter[Any]:
    return TypeAdapter(Any)


def _places_of(value: Any) -> SecretPlaces | None:
    """The secret places of a pydantic model; None for any other value."""
    if not isinstance(value, BaseModel):
        return None
    kind = type(value)
    if kind not in _models:
        try:
            _models[kind] = SecretPlaces.of(kind.model_json_schema(schema_generator=SecretSchema))
        except (PydanticSchemaGenerationError, PydanticUserError):  # it has no schema
            _models[kind] = None
    return _models[kind]


_models: WeakKeyDictionary[type[BaseModel], SecretPlaces | None] = WeakKeyDictionary()
"""The results of ``_places_of``, by type."""
