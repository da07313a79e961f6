"""The source of a form: the schema to draw and the validator to ask, for every kind of target."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from nbagent.forms.answer.check import Checker, accept_any, pydantic_checker, schema_checker
from nbagent.forms.hints import making_form
from nbagent.forms.schema.refs import NOTES
from nbagent.forms.texts import text_for
from nbagent.forms.values import Json, as_schema

from .generator import FormSchema


@dataclass(frozen=True)
class FormSource:
    """A schema, its validator, and whether untouched fields answer with their defaults."""

    schema: Json
    checker: Checker
    sends_defaults: bool
    by_alias: bool = True
    """Whether fields have the names of their aliases."""


def source_of(target: Any) -> FormSource:
    """The source for a JSON Schema (dict or bool), a TypeAdapter, a function, or any type."""
    if isinstance(target, dict | bool):
        schema = as_schema(target)
        return FormSource(schema, schema_checker(schema), sends_defaults=True)
    try:
        adapter = _adapter(target)
    except Exception as error:  # a type that pydantic has no schema for takes any JSON
        reason = _missing(error) or f"pydantic has no schema for it ({type(error).__name__})"
        return FormSource({NOTES: {"reason": reason}}, accept_any, sends_defaults=False)
    by_alias = not _needs_names(adapter)
    checker = pydantic_checker(adapter, by_name=not by_alias)
    schema = _schema(adapter, by_alias=by_alias)
    return FormSource(schema, checker, sends_defaults=False, by_alias=by_alias)


def _missing(error: Exception) -> str:
    """The advice to install a missing package, such as email-validator for EmailStr; empty if none is missing."""
    import_error = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    name = import_error.name if isinstance(import_error, ImportError) else None
    return text_for("install", package=name.replace("_", "-")) if name else ""


def _adapter(target: Any) -> TypeAdapter[Any]:
    if isinstance(target, TypeAdapter):
        return target
    if inspect.isroutine(target) or isinstance(target, functools.partial):
        target = _arguments_of(target)
    adapter: TypeAdapter[Any] = TypeAdapter(target)
    return adapter


def _arguments_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A function that has the parameters of ``function`` and returns the arguments by name."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # names that exist for type checkers only; pydantic gets the text
        signature = inspect.signature(function)

    def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(signature.bind(*args, **kwargs).arguments)

    arguments.__signature__ = signature.replace(return_annotation=Any)  # type: ignore[attr-defined]
    arguments.__annotations__ = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if each.annotation is not inspect.Parameter.empty
    }
    arguments.__module__ = getattr(function, "__module__", None) or __name__
    arguments.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)  # type: ignore[attr-defined]
    return arguments


def _schema(adapter: TypeAdapter[Any], *, by_alias: bool) -> Json:
    token = making_form.set(True)
    try:
        return as_schema(adapter.json_schema(by_alias=by_alias, schema_generator=FormSchema))
    except Exception as error:  # the user's own schema hooks may raise
        return {NOTES: {"reason": f"its schema could not be made ({type(error).__name__})"}}
    finally:
        making_form.reset(token)


def _needs_names(adapter: TypeAdapter[Any]) -> bool:
    """Whether pydantic's schema and validator disagree: a field has only path aliases, or no alias is validated."""
    todo: list[Any] = [adapter.core_schema]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            if item.get("validate_by_alias") is False:
                return True
            alias = item.get("validation_alias")
            if isinstance(alias, list) and alias:
                paths = alias if isinstance(alias[0], list) else [alias]
                if all(isinstance(path, list) and len(path) > 1 for path in paths):
                    return True
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            todo.extend(item)
    return False
