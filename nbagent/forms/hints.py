"""``FormHint``: hints for drawing a field in a form; the schema for a model has no hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakValueDictionary

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

HINT_KEY = "nbagent"
"""The one key in ``json_schema_extra`` that forms read."""

making_form: ContextVar[bool] = ContextVar("nbagent_making_form", default=False)
"""True while a schema is generated for a form; a schema for the model has no hints."""


@dataclass(frozen=True, kw_only=True)
class FormHint:
    """Hints for drawing a field: ``Annotated[str, FormHint(widget="textarea")]``.

    ``widget`` is one of ``textarea``, ``code:<language>``, ``slider``, ``radio``, ``select``,
    ``list`` (rows instead of a multi-select), ``file``, ``json``, or a function without
    parameters that returns an ipywidget with a ``value``. In a notebook, this widget is below the form and
    replaces the field (for fields of models, nested ones too, and not for secrets). ``option_titles``
    maps an option's value, as text, to its shown title. ``order`` sorts fields, small first. The schema
    that a model reads does not change.
    """

    widget: str | Callable[[], Any] | None = None
    order: int | None = None
    option_titles: dict[str, str] | None = None
    placeholder: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The values that are set, as JSON."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        known = {name: value for name, value in pairs if value is not None}
        if callable(self.widget):
            known["widget"] = f"{_FACTORY}{id(self)}"
            _factories[known["widget"]] = self
        return known

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Add a check to code: it has no character that a person who reads it cannot see."""
        schema = handler(source)
        if not str(self.widget).startswith("code"):
            return schema
        from nbagent.core.base.hidden import checked_code  # noqa: PLC0415 - only for code

        return core_schema.no_info_after_validator_function(
            lambda given: checked_code(given) if isinstance(given, str) else given, schema
        )

    def __get_pydantic_json_schema__(
        self, schema_of_type: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the hint beside the field's schema, in forms only."""
        schema = handler(schema_of_type)
        if not making_form.get():
            return schema
        return {**schema, HINT_KEY: {**schema.get(HINT_KEY, {}), **self.as_json()}}

    def __hash__(self) -> int:
        return hash((self.widget, self.order, self.placeholder))


_FACTORY = "ipywidget:"
_factories: WeakValueDictionary[str, FormHint] = WeakValueDictionary()
"""Hints with a factory, by the name that represents the factory in a schema, which cannot contain a function."""


def factory_of(hint: Mapping[str, Any]) -> Callable[[], Any] | None:
    """The factory of the ipywidget that a node's hint asks for, or None if it asks for none."""
    known = _factories.get(str(hint.get("widget", "")))
    return known.widget if known is not None and callable(known.widget) else None
