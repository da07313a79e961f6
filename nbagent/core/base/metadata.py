"""The ready-made metadata of an interrupt: what a tool says to the person it asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, assert_never, overload

from pydantic import BeforeValidator, ConfigDict, Field

from nbagent.core.hooks import hooks

from .errors import Misuse
from .interrupts import Expects, InPlace, InterruptKind, to_json, without_init
from .messages import Json


class Metadata(InPlace):
    """Base of the ready-made metadata; subclass one to add fields, which are shown as facts."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    first_fields: ClassVar[tuple[str, ...]] = ("message",)


class Option(InPlace):
    """One choice: the ``value`` that is answered, what the person reads, and a line of help."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    first_fields = ("value", "label", "help")
    value: Any
    label: str | None = None
    help: str | None = None

    @overload
    def __init__(
        self, value: Any, label: str | None = None, help: str | None = None, /
    ) -> None: ...
    @overload
    def __init__(
        self, value: Any, /, *, label: str | None = None, help: str | None = None
    ) -> None: ...
    @overload
    def __init__(
        self, *, value: Any, label: str | None = None, help: str | None = None
    ) -> None: ...
    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


class Column(Protocol):
    """A column of values, such as a pandas ``Series``."""

    def tolist(self) -> list[Any]:
        """Its values."""


Choices: TypeAlias = Sequence[str | int | float | Option] | Column | Callable[[], Any]


def _listed(choices: Any) -> Any:
    """Choices as they are now: what a function gives, or a column's values, each once."""
    if callable(choices):
        choices = choices()
    if hasattr(choices, "columns") and not hasattr(choices, "tolist"):
        names = [str(name) for name in choices.columns]
        column = repr(names[0]) if names else "…"
        raise Misuse(f"choices is a whole table. Pass one column, such as df[{column}]")
    if hasattr(choices, "tolist"):
        values = dict.fromkeys(choices.tolist())
        choices = [one for one in values if one is not None and one == one]  # noqa: PLR0124 - NaN
    return [_choice(one) for one in choices] if isinstance(choices, list | tuple) else choices


def _choice(value: Any) -> Any:
    """A plain value as a choice: it is what is answered, and its text is what is read."""
    if isinstance(value, str | Option | Mapping):
        return value
    return Option(value=value, label=str(value))


class Choose(Metadata):
    """Ask for one of ``choices``, or for several.

    Example:
            keep = await ctx.ask(nb.Choose("Keep which?", choices=["name", "age"], multiple=True))

    ``choices`` may be given as a function without parameters, or as a column (a pandas ``Series``, a
    numpy array): its values are taken when the question is asked, each once, without missing ones.
    What is stored is that list, so a run that is opened later asks the same.
    """

    first_fields = ("message", "choices")
    message: str
    choices: Annotated[list[str | Option], BeforeValidator(_listed)]
    multiple: bool = False
    allow_other: bool = False
    """Whether the person may write an answer that is not on the list."""
    selected: list[Any] = Field(default_factory=list)
    """Values that are chosen to begin with; set by code, never by a model."""

    @overload
    def __init__(
        self,
        message: str,
        choices: Choices,
        /,
        *,
        multiple: bool = False,
        allow_other: bool = False,
        selected: list[Any] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        message: str,
        *,
        choices: Choices,
        multiple: bool = False,
        allow_other: bool = False,
        selected: list[Any] = ...,
    ) -> None: ...
    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)

    def check_askable(self) -> None:
        """Refuse a question that has no answer.

        Raises:
            Misuse: there is nothing to choose from.
        """
        if not self.choices and not self.allow_other:
            raise Misuse(
                f"{type(self).__name__}({self.message!r:.80}) has no choices. Check the list that you pass, or set "
                "allow_other=True"
            )


class Confirm(Metadata):
    """Ask whether to go on, with the exact input shown.

    Example:
            if not ctx.resumed:
                ctx.interrupt(nb.Confirm("Empty the whole folder?", danger=True))
    """

    message: str
    danger: bool = False
    """Whether approving cannot be undone; shown as such."""

    @overload
    def __init__(self, message: str, /, *, danger: bool = False) -> None: ...
    @overload
    def __init__(self, *, message: str, danger: bool = False) -> None: ...
    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


class Ask(Metadata):
    """Ask for a value; its type is the tool's return annotation, or ``reply=``.

    Example:
            day = await ctx.ask(nb.Ask("When does it suit?"), reply=datetime.date)
    """

    message: str

    @overload
    def __init__(self, message: str, /) -> None: ...
    @overload
    def __init__(self, *, message: str) -> None: ...
    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


class Edit(Metadata):
    """Ask to look over the input, which can be changed before the tool runs.

    Example:
            if not ctx.resumed:
                ctx.interrupt(nb.Edit("Look it over before it goes out", fields=["subject", "body"]))
    """

    message: str
    fields: list[str] | None = None
    """The inputs that may be changed; None means all."""

    @overload
    def __init__(self, message: str, /, *, fields: list[str] | None = None) -> None: ...
    @overload
    def __init__(self, *, message: str, fields: list[str] | None = None) -> None: ...
    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


def expected(
    kind: InterruptKind,
    metadata: Any,
    *,
    reply_schema: Json = None,
    editable: bool | Sequence[str] = False,
    external: bool = False,
    asking: Mapping[str, Any] | None = None,
) -> Expects:
    """What answers a question: decided here, when it is asked, and read off its event by all others.

    Where a body paused, its metadata says whether it asks for leave to go on (``Confirm``, what may be
    edited, whatever else only informs) or for an answer in its place.

    Args:
        kind: who asks.
        metadata: what it says to the person, as the tool made it.
        reply_schema: JSON Schema of the answer.
        editable: what of the input may be changed.
        external: whether an outside system answers.
        asking: of a body that paused bare, what ``asking_inputs`` finds; else None.
    """
    if external or kind == "later":
        return "external"
    choices = _choices(metadata)
    match kind:
        case "budget":
            return "budget"
        case "lost":
            return "outcome"
        case "approval":
            return "edit" if editable else "approval"
        case "ask" if isinstance(metadata, Confirm) and _is_yes_or_no(reply_schema):
            return "confirmation"
        case "question" | "ask":
            return "choice" if choices else "value"
        case "tool":
            return _of_pause(metadata, choices, editable=bool(editable), asking=asking)
        case never:
            assert_never(never)


def _of_pause(
    metadata: Any,
    choices: Sequence[Any] | None,
    *,
    editable: bool,
    asking: Mapping[str, Any] | None,
) -> Expects:
    """What answers the pause of a body, or of middleware around it."""
    if choices or (asking and "choices" in asking):
        return "choice"
    if choices is not None or asking is not None or isinstance(metadata, Ask):
        return "value"  # any: nothing is offered
    if editable:
        return "edit"
    return "value" if _is_question(metadata) else "approval"


def is_bare(metadata: Any) -> bool:
    """Whether a pause says nothing to the person."""
    return metadata is None or (isinstance(metadata, Mapping) and not metadata)


def asking_inputs(
    input_: Mapping[str, Any], declared: Mapping[str, Any], reply_schema: Json
) -> dict[str, Any]:
    """The inputs with which a body asks that paused bare, as a model wrote them or left them to their default.

    A ``question``, or a ``message`` where the tool takes nothing but what a question has, is what is asked;
    ``choices`` are what it offers where the tool may return them, with ``multiple`` and ``allow_other``
    (or ``allowOther``). What the tool does not declare never asks.

    Args:
        input_: of the call.
        declared: JSON Schemas of what the tool takes, by name.
        reply_schema: JSON Schema of the answer.
    """
    given: dict[str, Any] = {}
    for name in (*_ASKED, *_OFFERED):
        schema = declared.get(name)
        default = schema.get("default") if isinstance(schema, Mapping) else None
        given[name] = input_.get(name, default) if name in declared else None
    texts = [name for name in _ASKED if isinstance(given[name], str) and given[name].strip()]
    if set(declared) - {*_ASKED, *_OFFERED}:
        texts = [name for name in texts if name == "question"]
    asking = {name: given[name] for name in texts[-1:]}
    choices = _choices(given)
    several = takes_several(choices, given["multiple"], reply_schema) if choices else None
    if several is None:
        return asking
    others = {name: True for name in ("allow_other", "allowOther") if given[name] is True}
    return {**asking, "choices": choices, "multiple": several, **others}


_ASKED = ("message", "question")
_OFFERED = ("choices", "multiple", "allow_other", "allowOther")
_LOOKED_AT = 20
"""Choices that are tried, of any number."""


def takes_several(choices: Sequence[Any], multiple: Any, reply_schema: Json) -> bool | None:
    """Whether the answer is a list of the choices, or one of them; None where neither is an answer.

    What was said counts where the type of the answer allows both.
    """
    values = [
        one["value"] if isinstance(one, Mapping) and "value" in one else one
        for one in choices[:_LOOKED_AT]
    ]
    for several in (multiple is True, multiple is not True):
        if any(fits(reply_schema, [value] if several else value) for value in values):
            return several
    return None


def fits(reply_schema: Json, value: Json) -> bool:
    """Whether a value is an answer, as far as the schema of the answer tells."""
    return reply_schema is None or not hooks.schema_errors(reply_schema, value)


def _is_question(metadata: Any) -> bool:
    """Whether the metadata asks something that has an answer, and not whether to go on."""
    plain = to_json(metadata)
    if isinstance(metadata, Confirm) or not isinstance(plain, Mapping):
        return False
    question = plain.get("question")
    return isinstance(question, str) and bool(question.strip()) and plain.get("danger") is not True


def _choices(metadata: Any) -> Sequence[Any] | None:
    """What the metadata offers, whatever made it; None where it offers nothing."""
    plain = to_json(metadata)
    choices = plain.get("choices") if isinstance(plain, Mapping) else None
    return choices if isinstance(choices, Sequence) and not isinstance(choices, str) else None


def _is_yes_or_no(reply_schema: Json) -> bool:
    return isinstance(reply_schema, Mapping) and reply_schema.get("type") == "boolean"
