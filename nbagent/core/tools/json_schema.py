"""JSON Schemas in place of types: values are plain JSON, and code that needs a type gets an adapter or a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.errors import PydanticUserError
from pydantic_core import InitErrorDetails, PydanticCustomError

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.messages import Json, dumps, json_in, object_in
from nbagent.core.base.secrets import Effort, SecretPlaces, child_schemas
from nbagent.core.hooks import hooks


class SchemaAdapter(TypeAdapter[Any]):  # type: ignore[misc]  # it is final to keep others from guessing
    """The ``TypeAdapter`` of a schema: a valid value is the plain document."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(Annotated[Any, AfterValidator(partial(_fitting, schema))])
        self.schema = schema

    def json_schema(self, **_options: Any) -> dict[str, Any]:
        """The schema, unchanged."""
        return self.schema


class SchemaInput(BaseModel):
    """The input of a tool with a schema instead of parameters: the model's input, by name."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    json_document: ClassVar[dict[str, Any]] = {}
    """The schema."""

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, value: Any) -> Any:
        return _fitting(cls.json_document, value)

    @classmethod
    def model_json_schema(cls, *_given: Any, **_options: Any) -> dict[str, Any]:
        """The schema, unchanged."""
        return cls.json_document

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        places = SecretPlaces.of(self.json_document)
        document = self.model_extra or {}
        yield from (document if places is None else places.masked(document)).items()

    @property
    def document(self) -> dict[str, Any]:
        """The plain document, for the body."""
        return dict(self.model_extra or {})


def input_model(schema: dict[str, Any], tool_name: str) -> type[SchemaInput]:
    """The model of an input that fits a schema."""
    made = create_model(f"{tool_name}_input", __base__=SchemaInput)
    made.json_document = schema
    return made


def adapter_of(type_: Any) -> TypeAdapter[Any]:
    """The adapter of a type, or of a JSON Schema in its place; an adapter of a checked schema is returned as it is."""
    if isinstance(type_, SchemaAdapter):
        return type_
    return SchemaAdapter(type_) if isinstance(type_, dict) else TypeAdapter(type_)


def why_no_schema(
    error: PydanticUserError,
    verb: str,
    advice: str = "a path, an id or plain data, and build the object in the body",
) -> str:
    """The reason why a type has no JSON Schema, or verb and advice if its values are not JSON, as a sentence's end."""
    if error.code in ("schema-for-unknown-type", "invalid-for-json-schema"):
        return f"{verb} {advice}"
    return error.message.split("\n", 1)[0]  # the type itself is not valid


def form_type(type_: Any) -> Any:
    """The source of a form: the schema itself, if the type was made from one."""
    if isinstance(type_, SchemaAdapter):
        return type_.schema
    if isinstance(type_, type) and issubclass(type_, SchemaInput):
        return type_.json_document
    return type_


def usable(
    type_: Any, option: str, error_type: type[NbagentError], *, as_input: bool = False
) -> Any:
    """A type unchanged, or a copy of a JSON Schema that can be used in place of a type.

    Args:
        type_: the type or schema.
        option: the name of the option, such as ``reply=``.
        error_type: the class of the error.
        as_input: True if the schema is for an input, whose values must be objects.

    Raises:
        NbagentError: an ``error_type``: the schema cannot be used, or ``type_`` is an instance, a string or a list.
    """
    if isinstance(type_, BaseModel):
        name = type(type_).__name__
        raise error_type(f"{option} must be a type, got an instance of {name}. Pass {name}")
    if isinstance(type_, str):
        raise error_type(
            f"{option} must be a type, got the string {type_!r:.80}. Pass the type itself"
        )
    if isinstance(type_, list):
        item_name = getattr(type_[0], "__name__", "…") if len(type_) == 1 else "…"
        raise error_type(
            f"{option} must be a type, got a list. For a list of values, use list[{item_name}]"
        )
    if not isinstance(type_, Mapping):
        return type_
    try:
        schema = json.loads(dumps(type_))
    except (TypeError, ValueError, RecursionError) as error:
        raise error_type(
            f"{option} must be a type or a JSON Schema, and this is not JSON: {error}"
        ) from None
    misfit = hooks.schema_misfit(schema, as_input=as_input)
    if misfit:
        raise error_type(f"The JSON Schema in {option} cannot be used: {misfit}")
    return schema


_JOINING = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
_NAMES: Mapping[type, str] = {list: "array", dict: "object"}
MAX_READ = 2_000
"""The maximum number of lists, objects and strings of one value that may be read; the rest stays as it is."""


def with_texts_read(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """The value, in which lists and objects that are JSON in a string are read, where the schema allows no string."""
    places, turns, effort = SecretPlaces(schema), iter(range(MAX_READ)), Effort()

    def read(each: Json, find: Callable[[], list[Json]]) -> Json:
        may_hold = type(each) in _NAMES or (
            isinstance(each, str) and each.lstrip()[:1] in ("[", "{")
        )
        if not may_hold or effort.left <= 0 or next(turns, None) is None:
            return each
        schemas = find()
        parts = list(places.parts(schemas, each, effort))

        def child(key: str | int, one: Json) -> Json:
            return read(one, partial(child_schemas, parts, key, effort))

        if isinstance(each, dict):
            return {key: child(key, one) for key, one in each.items()}
        if isinstance(each, list):
            return [child(index, one) for index, one in enumerate(each)]
        own = [part.get("type", "string") for part in parts if _JOINING.isdisjoint(part)]
        types = {kind for one in own for kind in ([one] if isinstance(one, str) else one)}
        if not types or "string" in types:
            return each
        try:
            found = json_in(each)
        except ValueError:
            return each
        return read(found, lambda: schemas) if _NAMES.get(type(found)) in types else each

    made = read(value, lambda: [schema])
    return value if made == value else object_in(dumps(made)) or value  # still within the limits


def _fitting(schema: Json, value: Any) -> Any:
    """The value; raises pydantic's ``ValidationError`` if it does not match the schema."""
    errors = hooks.schema_errors(schema, value)
    if not errors:
        return value
    lines: list[InitErrorDetails] = [
        {
            "type": PydanticCustomError("json_schema", "{told}", {"told": error["msg"]}),
            "loc": tuple(error["loc"]),
            "input": None,
        }
        for error in errors
    ]
    raise ValidationError.from_exception_data("value", lines, hide_input=True)
