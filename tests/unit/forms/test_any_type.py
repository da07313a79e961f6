"""Properties of forms for random pydantic types: a form accepts exactly what pydantic accepts."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AnyUrl,
    BaseModel,
    Field,
    Json,
    SecretStr,
    TypeAdapter,
    ValidationError,
    create_model,
)
from typing_extensions import TypedDict

from nbagent.forms.form import Form
from tests.unit.forms.drawn import drawn
from tests.unit.forms.judging import ids
from tests.unit.forms.test_properties import RELAXED, documents, drafts


class Color(Enum):
    RED = "r"
    NONE = None
    TWO = 2


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Loose(TypedDict, total=False):
    a: int
    b: str | None


class Tree(BaseModel):
    name: str
    left: Tree | None = None
    rest: list[Tree] = []


class Open(BaseModel, extra="allow"):
    a: int = 1


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: str


PLAIN: list[Any] = [
    str, int, float, bool, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta, UUID, AnyUrl, Any, None,
    object, Color, Level, Point, Loose, Tree, Open, Json[list[int]], Literal["a", "b"], Literal[1, "x", None, True],
    Annotated[int, Field(ge=0, lt=10)], Annotated[str, Field(min_length=1, pattern="^[a-z]*$")],
    Annotated[Cat | Dog, Field(discriminator="kind")], Cat | Dog, int | str, float | bool, Literal["a"] | str,
    dict, list, set[Literal["p", "q"]], Annotated[Decimal, Field(max_digits=4, decimal_places=1)], Json,
]  # fmt: skip


def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Types composed of other types."""
    return st.one_of(
        inner.map(lambda one: Optional[one]),  # noqa: UP045 - a type made at run time
        st.tuples(inner, inner).map(lambda two: Union[two]),  # noqa: UP007
        inner.map(lambda one: list[one]),
        inner.map(lambda one: dict[str, one]),
        st.tuples(inner, inner).map(lambda two: tuple[two]),
        inner.map(lambda one: tuple[one, ...]),
        st.dictionaries(st.sampled_from(["a", "b", "class_", "x_y"]), inner, max_size=3).map(
            _model
        ),
    )


def _model(fields: dict[str, Any]) -> Any:
    return create_model("Made", **{name: (type_, ...) for name, type_ in fields.items()})


TYPES = st.recursive(st.sampled_from(PLAIN), wider, max_leaves=5)


def adapter_of(type_: Any) -> TypeAdapter[Any] | None:
    """The type's own validator, or None if pydantic refuses the type."""
    try:
        return TypeAdapter(type_)
    except Exception:
        return None


@RELAXED
@given(type_=TYPES, document=documents, draft=drafts)
def test_a_form_of_any_type_accepts_exactly_what_pydantic_accepts(
    type_: Any, document: Any, draft: Any
) -> None:
    """Documents are kept and validated exactly; any drafts give an answer or errors at fields."""
    adapter = adapter_of(type_)
    if adapter is None:
        return
    form = Form(type_, value=document)
    json.dumps(form.spec(), allow_nan=False)
    answer = form.submit(None)
    assert answer.json_text is not None
    assert json.dumps(json.loads(answer.json_text)) == json.dumps(document)
    assert answer.ok is _takes(adapter, json.dumps(document)), answer.errors
    assert answer.ok is not bool(answer.errors)
    assert {field for field, _, _ in answer.errors} <= ids(form.fields) | {None}
    typed = form.submit(draft)
    assert typed.ok is not bool(typed.errors)
    Form(type_).submit(form.storable_draft(draft))
    drawn(form, document)


def _takes(adapter: TypeAdapter[Any], text: str) -> bool:
    try:
        adapter.validate_json(text)
    except ValidationError:
        return False
    return True


@RELAXED
@given(type_=TYPES)
def test_an_untouched_form_of_any_type_invents_nothing(type_: Any) -> None:
    """An untouched answer has only pydantic's own defaults and constants."""
    adapter = adapter_of(type_)
    if adapter is None:
        return
    answer = Form(type_).submit(None)
    if answer.ok:
        assert answer.document in ({}, [], None) or _only_constants(answer.document), answer


def _only_constants(document: Any) -> bool:
    """Whether a document has only tags and single choices."""
    inner = document.values() if isinstance(document, dict) else document
    if isinstance(document, dict | list):
        return all(map(_only_constants, inner))
    return document in ("cat", "dog", None)


def test_a_secret_of_any_type_is_never_in_the_spec() -> None:
    """However it is wrapped."""
    for type_ in (
        SecretStr,
        list[SecretStr],
        dict[str, SecretStr],
        tuple[SecretStr, int],
        int | SecretStr,
    ):
        form = Form(create_model("M", s=(type_, ...)), value={"s": ["hunter2"]})
        flat = Form(type_, value="hunter2")
        assert "hunter2" not in json.dumps(flat.spec())
        if type_ is list[SecretStr]:
            assert "hunter2" not in json.dumps(form.spec())
