"""pydantic's schema generator for forms: it adds notes that the ordinary schema lacks, and never raises.

Only forms use this generator; the schema that a model reads is pydantic's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaValue,
    JsonSchemaWarningKind,
)
from pydantic_core import core_schema, to_jsonable_python

from nbagent.forms.schema.refs import NOTES
from nbagent.forms.secrets import MASK
from nbagent.forms.values import children, is_finite


class FormSchema(GenerateJsonSchema):
    """Adds notes under ``NOTES``: member names, lost bounds, factories, and the reason why a part has no schema."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Do nothing: parts that a schema leaves out are JSON in the form."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        """A schema for any JSON, with the reason, for a part without a JSON schema."""
        del schema
        return {NOTES: {"reason": f"it has no schema ({error_info})"}}

    def arguments_schema(self, schema: core_schema.ArgumentsSchema) -> JsonSchemaValue:
        """The parameters of a function; ``*args`` beside keywords have no JSON schema."""
        try:
            return super().arguments_schema(schema)
        except PydanticInvalidForJsonSchema as error:
            return self.handle_invalid_for_json_schema(schema, str(error))

    def json_or_python_schema(self, schema: core_schema.JsonOrPythonSchema) -> JsonSchemaValue:
        """A type that JSON and Python write differently; all secrets are such types, also ``Secret[T]``."""
        keywords = super().json_or_python_schema(schema)
        function = schema.get("serialization", {}).get("function")
        is_secret = getattr(function, "__name__", "").startswith("_serialize_secret")
        return {**keywords, "writeOnly": True} if is_secret else keywords

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """An Enum, with the members' names as titles."""
        names = [_readable(member.name) for member in schema["members"]]
        return _marked(super().enum_schema(schema), titles=names)

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A Decimal, which is not the same as a number or any text."""
        lost = {name: schema[name] for name in ("max_digits", "decimal_places") if name in schema}
        bounds = _bounds(schema)
        return _marked(super().decimal_schema(schema), kind="decimal", limits={**bounds, **lost})

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """A date, with its bounds."""
        return _marked(super().date_schema(schema), limits=_bounds(schema))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """A point in time, with its bounds and whether it must have a zone."""
        limits = _bounds(schema)
        if schema.get("tz_constraint") in ("aware", "naive"):
            limits["zone"] = schema["tz_constraint"]
        return _marked(super().datetime_schema(schema), limits=limits)

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """A time of day, with its bounds."""
        return _marked(super().time_schema(schema), limits=_bounds(schema))

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """A duration, with its bounds; pydantic reads more notations than the format ``duration``."""
        return _marked(super().timedelta_schema(schema), limits=_bounds(schema), timedelta=True)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """A default, unless it is secret or not JSON; a factory is noted, with its value."""
        keywords = super().default_schema(schema)
        if "default" in keywords and (
            keywords["default"] == MASK or not is_finite(keywords["default"])
        ):
            keywords = {key: value for key, value in keywords.items() if key != "default"}
            return _marked(keywords, hidden_default=True)
        if "default_factory" in schema:
            return _marked(keywords, **self._factory_default(schema))
        return keywords

    def _factory_default(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """The value of a factory, if it is the same each time; a clock or a random id is not."""
        if schema.get("default_factory_takes_data"):
            return {"hidden_default": True}
        factory: Any = schema["default_factory"]
        try:
            first, second = (self.encode_default(factory()) for _ in range(2))
        except Exception:  # the user's own code may raise; the form still opens
            return {"hidden_default": True}
        steady = first == second and is_finite(first) and MASK not in (first, *children(first))
        return {"made_default": first} if steady else {"hidden_default": True}


def _marked(keywords: JsonSchemaValue, **notes: Any) -> JsonSchemaValue:
    return {**keywords, NOTES: {**keywords.get(NOTES, {}), **notes}}


def _readable(name: str) -> str:
    return name.replace("_", " ").strip().capitalize() if name.isupper() else name


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def _bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds as JSON Schema names them, written as text."""
    found = {
        name: str(to_jsonable_python(schema[keyword]))
        for keyword, name in _BOUNDS.items()
        if schema.get(keyword) is not None
    }
    return {**found, **({"now": schema["now_op"]} if "now_op" in schema else {})}
