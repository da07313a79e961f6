"""The wire between kernel and front end: every message, typed.

The kernel sends ``Snapshot`` and ``Patch`` (numbered, at most 30 a second over all runs) and
``Receipt``, ``Names``, ``Keep``; the front end sends ``Hello``, ``Answer``, ``Drafts``, ``Press``, ``Stop``, ``Retry``, ``Focus``,
``Attach``, ``Say``, ``Complete``, ``Keeps``. The same
shapes are JSDoc typedefs in ``frontend/wire.js``; ``tests/fixtures/wire.json`` has examples of each
that both ends check.

The drawing is a list of items, each with a key that stays; an operation names the item it changes.
HTML fields hold sanitized blocks made by ``render.markdown``, ``render.rich`` or ``render.arguments``;
every other string is data and reaches the page by ``textContent``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from nbagent.core.base.foreign import counted_value


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


RunStatus = Literal["queued", "running", "interrupted", "completed", "failed", "cancelled"]
CallState = Literal["preparing", "running", "waiting", "done", "failed", "rejected", "cancelled"]


class Fact(_Wire):
    """One named value, shown and not edited; ``value`` is text, JSON where it was not a string."""

    label: str
    value: str
    code: bool = True
    """Whether it is shown in monospace."""
    changed_from: str | None = None
    """The value before a person changed it."""
    parts: list[str] = Field(default_factory=list)
    """The value in pieces, where something in it is marked: every second one is."""
    remark: str = ""
    """A note on the marks, or on the value, in words."""
    html: str = ""
    """The value as code or as a tree: sanitized HTML, drawn in its place."""
    nested_value: Any = Field(default=None, exclude=True)
    """The value itself, where the static view draws it nested; it is never sent."""


class Rich(_Wire):
    """A piece of rich output. ``html``: sanitized HTML. ``image``: a data: URL. ``text``: preformatted.

    ``links``: sanitized HTML too, of the read sources. Unlike a table or a picture it does not open its row.
    """

    kind: Literal["html", "image", "text", "links"]
    data: str
    alt: str = ""


class Progress(_Wire):
    """The progress of a tool; ``fraction`` None draws an indeterminate bar."""

    fraction: float | None = None
    text: str = ""


class TextItem(_Wire):
    """Text of the model: finished sanitized ``blocks``, and the open end: ``tail`` HTML, then ``raw`` text."""

    type: Literal["text"] = "text"
    key: str
    blocks: list[str] = Field(default_factory=list)
    tail: str = ""
    raw: str = ""


class ReasoningItem(_Wire):
    """The model's reasoning, folded; plain text."""

    type: Literal["reasoning"] = "reasoning"
    key: str
    text: str = ""


class CallItem(_Wire):
    """A tool call: one row, opened to see input, output and result."""

    type: Literal["call"] = "call"
    key: str
    name: str
    path: str = ""
    """``planner ▸ banker`` for a nested call, else empty."""
    brief: str = ""
    """One line with a summary of the input."""
    state: CallState
    input: list[Fact] = Field(default_factory=list)
    started_at: float | None = None
    """Unix seconds; the front end counts up from it while the state is ``running``."""
    elapsed: float | None = None
    """Seconds, once known."""
    progress: Progress | None = None
    printed: str = ""
    outputs: list[Rich] = Field(default_factory=list)
    """The tool's displays, then its result if that is rich."""
    result: str | None = None
    """The result as text, if no rich output shows it; the error's text if it failed."""
    traceback: str = ""
    """The traceback of its tool, as far as this process knows it."""
    decisions: list[RecordItem] = Field(default_factory=list)
    """The decisions on its own questions, oldest first: the row shows the last one."""


ActionName = Literal["submit", "approve", "reject", "answer"]
"""``submit`` sends the fields as the answer. ``approve`` lets the tool run, with the fields if they are of
its input. ``answer`` sends the fields of ``Instead`` as the result of a call that does not run. ``reject``
refuses."""


class Action(_Wire):
    """A button of a form. ``primary`` is the main one; ``reason`` asks for a text first."""

    name: ActionName
    label: str
    menu: bool = False
    """Whether it is in the ⋯ menu, and not beside the main button."""
    changed_label: str | None = None
    """The label once a field differs from what was proposed."""
    primary: bool = False
    danger: bool = False
    reason: bool = False
    help: str = ""
    """Its effect, in a sentence; shown in the menu."""


class Remember(_Wire):
    """A rule that approving may add, such as "Always allow send_mail in this run"."""

    id: str
    label: str
    help: str = ""
    """The calls that it allows from then on, in a sentence."""


class Instead(_Wire):
    """The form of a call's result, given by a person; it opens on its ``answer`` action."""

    spec: dict[str, Any]
    drafts: Any = None


class FormItem(_Wire):
    """A question that waits. ``spec`` is the value of ``forms.Form.spec()``, or None without fields."""

    type: Literal["form"] = "form"
    key: str
    interrupt: str
    call: str
    """The key of the call it belongs to, or empty."""
    tool: str
    """The tool or flow that asks; empty if the header names it."""
    path: str = ""
    title: str
    """The metadata's message, or a sentence that names the tool."""
    note: str | None = None
    facts: list[Fact] = Field(default_factory=list)
    """The metadata's other fields, and the exact input if it is approved and cannot be edited."""
    preview: list[Rich] = Field(default_factory=list)
    """The effect of approving, as the tool's ``preview`` shows it, above the buttons."""
    preview_note: str | None = None
    """The missing input that the preview waits for."""
    preview_error: str | None = None
    """The error of making the preview, in one line; approving still works."""
    spec: dict[str, Any] | None = None
    drafts: Any = None
    """The unsent input before a reload, or None for an untouched form."""
    named: str = ""
    """A description of the fields, if the title has none."""
    instead: Instead | None = None
    actions: list[Action]
    """Empty if an outside system answers: the page then only shows it."""
    remember: list[Remember] = Field(default_factory=list)
    """Rules that an approval may add, offered in a menu as long as no field is changed."""
    approval: bool = False
    """Whether Enter never submits and digits pick nothing."""
    expires_at: float | None = None
    group: str = ""
    """Equal for similar questions, which the page draws as one table; an empty one is shown by itself."""
    input: list[Fact] = Field(default_factory=list)
    """The exact input of the call, for the table; empty without a group."""


class RecordItem(_Wire):
    """An answered question, in one line: ``title`` · ``decision``, details below if there are any."""

    type: Literal["record"] = "record"
    key: str
    title: str
    decision: str
    tone: Literal["good", "bad", "plain"] = "good"
    details: list[Fact] = Field(default_factory=list)
    after: float | None = None
    """Seconds the person took."""


NoticeActionName = Literal["stop", "show", "go_on", "take", "leave", "notify", "quiet", "blocked"]
"""``take`` takes the run over: the first press asks for confirmation, the second does it; ``leave`` cancels.
``notify`` and ``quiet`` turn the browser's notifications on and off, which the page does and then reports; ``blocked``
reports that the browser allows none."""


class NoticeAction(_Wire):
    """A button of a notice."""

    name: NoticeActionName
    label: str


class NoticeItem(_Wire):
    """A line from nbagent itself: an error, a retry, an earlier run that still executes."""

    type: Literal["notice"] = "notice"
    key: str
    tone: Literal["bad", "warn", "plain"] = "plain"
    text: str
    actions: list[NoticeAction] = Field(default_factory=list)
    until: float | None = None
    """The end of a wait in Unix seconds: the page counts down to it."""


class MessageItem(_Wire):
    """A message that the person wrote while the run was running, or the files of its prompt."""

    type: Literal["message"] = "message"
    key: str
    text: str
    note: str = ""
    """The reason why the model does not have it yet."""
    files: list[Rich] = Field(default_factory=list)
    """Its files: pictures, and the names of other files, each with a description in words."""
    editable: bool = False
    """Whether it is a prompt that may be edited."""


Item: TypeAlias = Annotated[
    TextItem | ReasoningItem | CallItem | FormItem | RecordItem | NoticeItem | MessageItem,
    Field(discriminator="type"),
]


class Span(_Wire):
    """A span of the time strip, in seconds from the start; ``end`` None has not ended yet."""

    lane: Literal["model", "tool", "wait"]
    start: float
    end: float | None = None


class Count(_Wire):
    """A counted value, as in the footer; ``about`` is its explanation under the pointer."""

    text: str
    about: str = ""


class Head(_Wire):
    """The card's frame: header, pill and footer."""

    run: str
    agent: str
    prompt: str
    status: RunStatus
    status_text: str
    started_at: float
    turns: int = Field(default=0, exclude=True)
    max_turns: int = Field(default=20, exclude=True)
    """0 if no model answers, as in a flow."""
    tokens: int = Field(default=0, exclude=True)
    cost: float | None = Field(default=None, exclude=True)
    """US dollars, if the cost of all responses is known."""
    known_cost: float = Field(default=0, exclude=True)
    """The known part of the cost."""
    cached: int = Field(default=0, exclude=True)
    """The number of tokens that the server had already."""
    reasoning: int = Field(default=0, exclude=True)
    """The number of tokens of hidden reasoning."""
    counts: list[Count] = Field(default_factory=list)
    """The counts in words, as a page gets them."""
    questions: int = 0
    """The number of questions for a person; not those that another system answers."""
    decisions: int = Field(default=0, exclude=True)
    """The number of people's decisions of any kind."""
    decisions_by_you: int = Field(default=0, exclude=True)
    """The number of them at this card, or at one like it."""
    stopping: bool = False
    """Whether somebody pressed Stop and unfinished calls have not ended yet."""
    chat: bool = False
    """Whether it is a thread of runs, with a message box; its counts are sums."""
    asks: bool = False
    """Whether it is a run that has ended, and the page offers a follow-up below it; only in live cards."""
    spans: list[Span] = Field(default_factory=list)


class View(_Wire):
    """The whole drawing of a run."""

    head: Head
    items: list[Item] = Field(default_factory=list)


class Put(_Wire):
    """Insert ``item`` at ``index``, or replace the item of that key in its place."""

    op: Literal["put"] = "put"
    item: Item
    index: int


class Remove(_Wire):
    """Remove the item of this key."""

    op: Literal["remove"] = "remove"
    key: str


class Raw(_Wire):
    """Append ``text`` to the open end of a text or reasoning item."""

    op: Literal["raw"] = "raw"
    key: str
    text: str


class Block(_Wire):
    """Draw the open end of a text item again: ``start`` and ``end`` characters of it stay, ``html`` is between.

    The previous open end is one piece of HTML, its raw text in the place where it continues. The first
    characters up to each of ``ends`` are finished blocks now, the rest is the tail; ``raw`` follows.
    Characters are UTF-16 units; ``html`` is written as ``view.shorthand`` has it.
    """

    op: Literal["block"] = "block"
    key: str
    start: int = 0
    end: int = 0
    html: str = ""
    ends: list[int] = Field(default_factory=list)
    raw: str = ""


class Print(_Wire):
    """Append to the printed text of a call."""

    op: Literal["print"] = "print"
    key: str
    text: str


class SetHead(_Wire):
    """Replace the head."""

    op: Literal["head"] = "head"
    head: Head


Op: TypeAlias = Annotated[Put | Remove | Raw | Block | Print | SetHead, Field(discriminator="op")]


class Attached(_Wire):
    """A file that the kernel has for a message which is not sent yet."""

    id: str
    name: str
    size: int


class Snapshot(_Wire):
    """Everything; the next patch has the number ``seq`` + 1."""

    type: Literal["snapshot"] = "snapshot"
    seq: int
    view: View
    now: float
    """The kernel's Unix time, so that the front end's clock need not be right."""
    texts: dict[str, str] = Field(default_factory=dict)
    """The texts that the front end itself shows, unless the page has them already."""
    written: str = ""
    """The unsent text in a chat's box, for a reload; sent only to pages, never in the trait."""
    attached: list[Attached] = Field(default_factory=list)
    """The files in the box, for a reload too: their names and types, without their content."""


class Patch(_Wire):
    """Operations in order; a front end whose last number is not ``seq`` - 1 sends ``Hello`` again."""

    type: Literal["patch"] = "patch"
    seq: int
    ops: list[Op]


class FieldError(_Wire):
    """An error at the field with this id, or at the form as a whole if it is None."""

    field: str | None
    message: str


class Receipt(_Wire):
    """The outcome of a submission; sent to every view, which finds it by ``submission``."""

    type: Literal["receipt"] = "receipt"
    submission: str
    interrupt: str
    ok: bool
    errors: list[FieldError] = Field(default_factory=list)


class Drawn(_Wire):
    """The text of an item as the page draws it: its HTML, or its plain text if the piece is plain text."""

    key: str


Piece: TypeAlias = str | tuple[int, int] | Drawn
"""Text, or a range of the style sheet that a page has of all cards, or an item's text."""


class Keep(_Wire):
    """The form of a card for a notebook that is saved now, as only its kernel can draw a widget."""

    type: Literal["keep"] = "keep"
    view: str
    """The model id of the widget that is displayed, by which the page finds its outputs."""
    number: int = 0
    """The number of the bundle; it is left out if it is that number's, which a page that missed it asks for."""
    bundle: dict[str, list[Piece]] = Field(default_factory=dict)
    """HTML and text that need no kernel, by mime type."""
    seq: int | None = None
    """The number of the patch after which a page draws these items; a page at another number asks for it again."""
    ended: bool = False
    """Whether this is the last: the page shows it in the widget's place, and sends a confirmation."""
    over: bool = False
    """Whether the card has nothing unfinished: the page shows it in the widget's place once the kernel has stopped."""


class Name(_Wire):
    """A name after ``@`` or ``/``, and a short description: never a value."""

    name: str
    about: str = ""


class Names(_Wire):
    """The reply to ``Complete``, with its text."""

    type: Literal["names"] = "names"
    text: str
    names: list[Name]


FromKernel: TypeAlias = Annotated[
    Snapshot | Patch | Receipt | Names | Keep, Field(discriminator="type")
]


class Hello(_Wire):
    """A page that wants a snapshot: nobody is in the card yet, and nothing is open."""

    type: Literal["hello"] = "hello"
    keeps: bool = False
    """Whether it writes the content of ``Keep`` into its notebook."""
    again: bool = False
    """Whether it was there before, and missed something."""


class Answer(_Wire):
    """A person pressed a button of a form. ``submission`` is random, made by the page per press."""

    type: Literal["answer"] = "answer"
    interrupt: str
    submission: str
    action: ActionName
    drafts: Any = None
    reason: str | None = None
    remember: str | None = None
    """The id of the rule that this approval adds, or None."""


class Drafts(_Wire):
    """Unsent input, for a reload; never secrets."""

    type: Literal["drafts"] = "drafts"
    interrupt: str
    """Empty for the box of a chat, whose draft is its text."""
    drafts: Any
    instead: bool = False
    """Whether they are of ``FormItem.instead``."""


class Press(_Wire):
    """A button of a notice was pressed."""

    type: Literal["press"] = "press"
    notice: str
    """The notice's key."""
    action: NoticeActionName


class Stop(_Wire):
    """The Stop button."""

    type: Literal["stop"] = "stop"


class Retry(_Wire):
    """The Retry button of a run that failed."""

    type: Literal["retry"] = "retry"


class Focus(_Wire):
    """Whether anything in the card has focus or is selected, and the keys of the open items."""

    type: Literal["focus"] = "focus"
    busy: bool
    opened: list[str] = Field(default_factory=list)


class Keeps(_Wire):
    """This page has written the end into its notebook; or (not ``ended``) has missed the content to write."""

    type: Literal["keeps"] = "keeps"
    ended: bool = False


class SaidFile(_Wire):
    """A file that was dropped, pasted or picked; ``data`` is base64."""

    name: str
    media_type: str
    data: str


class Attach(_Wire):
    """A file for the next message, which the kernel has from now on; None removes it."""

    type: Literal["attach"] = "attach"
    id: str
    """Random, made by the page for each file."""
    file: SaidFile | None


class Say(_Wire):
    """A message from a chat's box. ``submission`` is random; a ``Receipt`` without interrupt answers it."""

    type: Literal["say"] = "say"
    submission: str
    text: str
    files: list[str] = Field(default_factory=list)
    """The ids of those that were attached."""
    instead: str | None = None
    """The key of the message that it replaces."""
    keep: list[int] = Field(default_factory=list)
    """The files of the replaced message that it has too, counted from 0."""


class Complete(_Wire):
    """Ask for names with this start: ``@`` variables of the notebook, ``/`` tools of the agent."""

    type: Literal["complete"] = "complete"
    text: str


FromFrontEnd: TypeAlias = Annotated[
    Hello | Answer | Drafts | Press | Stop | Retry | Focus | Attach | Say | Complete | Keeps,
    Field(discriminator="type"),
]

MAX_TEXT = 10 * 2**20
"""Characters of a page's message: Jupyter's server takes no larger ones."""
_from_front_end: TypeAdapter[FromFrontEnd] = TypeAdapter(FromFrontEnd)


def check_size(content: Any) -> None:
    """Refuse a page's message that is too large to parse, before anything is done with it.

    Raises:
        TooManyParts: it is.
    """
    counted_value(content, characters=MAX_TEXT)


def parse_message(content: Any) -> FromFrontEnd:
    """Return a page's message, from JSON that the kernel has parsed and ``check_size`` has accepted.

    Raises:
        ValueError: it is not a valid message.
    """
    return _from_front_end.validate_python(content, strict=False)
