"""Ready-made metadata of an interrupt: the question that the person sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, assert_never, overload

from pydantic import BeforeValidator, ConfigDict, Field

from nbagent.core.hooks import hooks

from .errors import Misuse
from .interrupts import Expects, InterruptKind, Positional, skipped_by_validation, to_json
from .messages import Json


class Metadata(Positional):
    """Base of the ready-made metadata. Fields of a subclass are shown as facts."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    first_fields: ClassVar[tuple[str, ...]] = ("message",)


class Option(Positional):
    """One choice: the ``value`` of the answer, the text that the person reads, and a line of help."""

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
    @skipped_by_validation
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


class Column(Protocol):
    """A column of values, such as a pandas ``Series``."""

    def tolist(self) -> list[Any]:
        """The values of the column."""


Choices: TypeAlias = Sequence[str | int | float | Option] | Column | Callable[[], Any]


def _listed(choices: Any) -> Any:
    """The choices as a list: a function's result, or a column's values, each once."""
    if callable(choices):
        choices = choices()
    if hasattr(choices, "columns") and not hasattr(choices, "tolist"):
        names = [str(name) for name in choices.columns]
        column = repr(names[0]) if names else "…"
        raise Misuse(f"choices must be one column, such as df[{column}], got a whole table")
    if hasattr(choices, "tolist"):
        values = dict.fromkeys(choices.tolist())
        choices = [one for one in values if one is not None and one == one]  # noqa: PLR0124 - NaN
    return [_choice(one) for one in choices] if isinstance(choices, list | tuple) else choices


def _choice(value: Any) -> Any:
    """A plain value as a choice, with its text as the label."""
    if isinstance(value, str | Option | Mapping):
        return value
    return Option(value=value, label=str(value))


class Choose(Metadata):
    """Ask for one of ``choices``, or for several.

    Example:
            keep = await ctx.ask(nb.Choose("Keep which?", choices=["name", "age"], multiple=True))

    ``choices`` can be a function without parameters, or a column (a pandas ``Series``, a numpy array). Each
    distinct value of a column is one choice, except missing values. The choices are read when ``Choose`` is called, and
    stored, so a run that is opened later shows the same choices.
    """

    first_fields = ("message", "choices")
    message: str
    choices: Annotated[list[str | Option], BeforeValidator(_listed)]
    multiple: bool = False
    allow_other: bool = False
    """True if the person may write an answer that is not in the list."""
    selected: list[Any] = Field(default_factory=list)
    """Values that are selected initially; set by code, never by a model."""

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
    @skipped_by_validation
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)

    def check_askable(self) -> None:
        """Raise if the question has no possible answer.

        Raises:
            Misuse: there are no choices.
        """
        if not self.choices and not self.allow_other:
            raise Misuse(
                f"{type(self).__name__}({self.message!r:.80}) has no choices. Check the list that you pass, or set "
                "allow_other=True"
            )


class Confirm(Metadata):
    """Ask for approval, and show the exact input.

    Example:
            if not ctx.resumed:
                ctx.interrupt(nb.Confirm("Empty the whole folder?", danger=True))
    """

    message: str
    danger: bool = False
    """True if approving cannot be undone; the form shows it."""

    @overload
    def __init__(self, message: str, /, *, danger: bool = False) -> None: ...
    @overload
    def __init__(self, *, message: str, danger: bool = False) -> None: ...
    @skipped_by_validation
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


class Ask(Metadata):
    """Ask for a value. Its type is ``reply=`` of ``ctx.ask`` (text by default), or the tool's return annotation.

    Example:
            day = await ctx.ask(nb.Ask("When does it suit?"), reply=datetime.date)
    """

    message: str

    @overload
    def __init__(self, message: str, /) -> None: ...
    @overload
    def __init__(self, *, message: str) -> None: ...
    @skipped_by_validation
    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)


class Edit(Metadata):
    """Ask for a review of the input, which can be changed before the tool runs.

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
    @skipped_by_validation
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
    """The kind of answer to a question, which is stored in the question's event.

    If a body paused, the metadata decides whether the body asks for permission to continue (``Confirm``, editable
    input, or metadata that only informs) or for an answer.

    Args:
        kind: the kind of interrupt.
        metadata: the metadata as the tool made it.
        reply_schema: JSON Schema of the answer.
        editable: the inputs that may be changed.
        external: True if an outside system answers.
        asking: for a body that paused without metadata, the result of ``asking_inputs``; else None.
    """
    if external or kind == "later":
        return "external"
    plain = to_json(metadata)
    choices = _choices(plain)
    match kind:
        case "budget" | "lost":
            return "budget" if kind == "budget" else "outcome"
        case "approval":
            return "edit" if editable else "approval"
        case "ask" if (
            isinstance(metadata, Confirm)
            and isinstance(reply_schema, Mapping)
            and reply_schema.get("type") == "boolean"
        ):
            return "confirmation"
        case "question" | "ask":
            return "choice" if choices else "value"
        case "tool":
            if choices or (asking and "choices" in asking):
                return "choice"
            if choices is not None or asking is not None or isinstance(metadata, Ask):
                return "value"  # any value, because no choices are offered
            is_question = not editable and _is_question(metadata, plain)
            return "edit" if editable else "value" if is_question else "approval"
        case never:
            assert_never(never)


def is_bare(metadata: Any) -> bool:
    """Whether a pause has no text for the person."""
    return metadata is None or (isinstance(metadata, Mapping) and not metadata)


def asking_inputs(
    input_: Mapping[str, Any], declared: Mapping[str, Any], reply_schema: Json
) -> dict[str, Any]:
    """The inputs that are the question of a body that paused without metadata.

    A ``question`` input is the question. Without one, a ``message`` input is the question, if the tool has no
    inputs but those that this paragraph names. ``choices`` are the options if the tool may return them, with
    ``multiple`` and ``allow_other`` (or ``allowOther``). Values are the model's, or defaults. Undeclared inputs do
    not count.

    Args:
        input_: the input of the call.
        declared: JSON Schemas of the tool's inputs, by name.
        reply_schema: JSON Schema of the answer.
    """
    values: dict[str, Any] = {}
    for name in (*_QUESTION_INPUTS, *_OPTION_INPUTS):
        schema = declared.get(name)
        default = schema.get("default") if isinstance(schema, Mapping) else None
        values[name] = input_.get(name, default) if name in declared else None
    texts = [
        name for name in _QUESTION_INPUTS if isinstance(values[name], str) and values[name].strip()
    ]
    if set(declared) - {*_QUESTION_INPUTS, *_OPTION_INPUTS}:
        texts = [name for name in texts if name == "question"]
    asking = {name: values[name] for name in texts[-1:]}
    choices = _choices(values)
    several = takes_several(choices, values["multiple"], reply_schema) if choices else None
    if several is None:
        return asking
    others = {name: True for name in ("allow_other", "allowOther") if values[name] is True}
    return {**asking, "choices": choices, "multiple": several, **others}


_QUESTION_INPUTS = ("message", "question")
_OPTION_INPUTS = ("choices", "multiple", "allow_other", "allowOther")
_MAX_CHECKED = 20
"""Maximum number of choices that are checked."""


def takes_several(choices: Sequence[Any], multiple: Any, reply_schema: Json) -> bool | None:
    """Whether the answer is a list of choices (True) or one choice (False); None if neither is valid.

    ``multiple`` decides if the type of the answer allows both.
    """
    values = [
        one["value"] if isinstance(one, Mapping) and "value" in one else one
        for one in choices[:_MAX_CHECKED]
    ]
    for several in (multiple is True, multiple is not True):
        if any(fits(reply_schema, [value] if several else value) for value in values):
            return several
    return None


def fits(reply_schema: Json, value: Json) -> bool:
    """Whether a value is a valid answer according to the schema, if there is one."""
    return reply_schema is None or not hooks.schema_errors(reply_schema, value)


def _is_question(metadata: Any, plain: Json) -> bool:
    """Whether the metadata, and as JSON, has a question with an answer, not a request to continue."""
    if isinstance(metadata, Confirm) or not isinstance(plain, Mapping):
        return False
    question = plain.get("question")
    return isinstance(question, str) and bool(question.strip()) and plain.get("danger") is not True


def _choices(plain: Json) -> Sequence[Any] | None:
    """The options of metadata as JSON; None if it has none."""
    choices = plain.get("choices") if isinstance(plain, Mapping) else None
    return choices if isinstance(choices, Sequence) and not isinstance(choices, str) else None
