"""The protocol between kernel and front end: the type of every message.

The kernel sends ``FromKernel`` (as a rule at most 30 patches a second over all runs), the front end ``FromFrontEnd``.
``frontend/wire.js`` has the same types as JSDoc typedefs. ``tests/fixtures/wire.json`` has an example of each
message, which both ends check.

A card is drawn from a list of items, each with a constant key. An operation names the item that it changes.
HTML fields contain sanitized blocks from ``render.markdown``, ``render.rich`` or ``render.arguments``.
The page inserts every other string as ``textContent``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


RunStatus = Literal["queued", "running", "interrupted", "completed", "failed", "cancelled"]
CallState = Literal["preparing", "running", "waiting", "done", "failed", "rejected", "cancelled"]


class Fact(_Wire):
    """A named value that is shown and cannot be edited; ``value`` is the string, or the JSON of any other value."""

    label: str
    value: str
    code: bool = True
    """Whether the value is shown in monospace."""
    changed_from: str | None = None
    """The value before a person changed it."""
    parts: list[str] = Field(default_factory=list)
    """The value in pieces, if some of its characters are marked: every second piece is marked."""
    remark: str = ""
    """An explanation of the marks, or a note on the value."""
    html: str = ""
    """The value as code or as a tree, in sanitized HTML that is drawn instead of ``value``."""
    nested_value: Any = Field(default=None, exclude=True)
    """The value as an object, if the static card draws it nested; never sent to a page."""


class Rich(_Wire):
    """A piece of rich output. ``html``: sanitized HTML. ``image``: a data: URL. ``text``: preformatted.

    ``links``: sanitized HTML with the sources that were read. A row with ``html`` or ``image`` is open at first, a row
    with only ``links`` is not.
    """

    kind: Literal["html", "image", "text", "links"]
    data: str
    alt: str = ""


class Progress(_Wire):
    """The progress of a tool; ``fraction`` None draws an indeterminate bar."""

    fraction: float | None = None
    text: str = ""


class TextItem(_Wire):
    """Text of the model: finished ``blocks`` of sanitized HTML, then the open end: ``tail`` (HTML), ``raw`` (text)."""

    type: Literal["text"] = "text"
    key: str
    blocks: list[str] = Field(default_factory=list)
    tail: str = ""
    raw: str = ""


class ReasoningItem(_Wire):
    """The model's reasoning as plain text, folded."""

    type: Literal["reasoning"] = "reasoning"
    key: str
    text: str = ""


class CallItem(_Wire):
    """A tool call: one row, which opens to show input, output and result."""

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
    """The duration in seconds, once known."""
    progress: Progress | None = None
    printed: str = ""
    outputs: list[Rich] = Field(default_factory=list)
    """The tool's displays, then its result if that is rich."""
    result: str | None = None
    """The result as text, if no rich output shows it; the error's text if the call failed."""
    traceback: str = ""
    """The traceback of the call's tool; empty if this process has none."""
    decisions: list[RecordItem] = Field(default_factory=list)
    """The decisions on the call's own questions, oldest first; the row shows the last decision."""


ActionName = Literal["submit", "approve", "reject", "answer"]
"""``submit`` sends the fields as the answer. ``approve`` runs the tool; if the fields are the tool's input, it runs
with them. ``answer`` sends the fields of ``Instead`` as the result of a call that does not run. ``reject`` rejects the
call, or declines to answer."""


class Action(_Wire):
    """A button of a form. ``primary`` marks the main button; with ``reason``, the page asks for a reason first."""

    name: ActionName
    label: str
    menu: bool = False
    """Whether the button is in the ⋯ menu, and not beside the main button."""
    changed_label: str | None = None
    """The label once a field differs from the proposed value."""
    primary: bool = False
    danger: bool = False
    reason: bool = False
    help: str = ""
    """The button's effect in one sentence, shown in the menu."""


class Remember(_Wire):
    """A rule that approving may add, such as "Always allow send_mail in this run"."""

    id: str
    label: str
    help: str = ""
    """One sentence that names the calls which the rule allows from then on."""


class Instead(_Wire):
    """The form for a result that a person enters instead of running the call; the ``answer`` action opens the form."""

    spec: dict[str, Any]
    drafts: Any = None


class Spread(_Wire):
    """The values of one input in many questions."""

    name: str
    text: str = ""
    """The range and the sum of numbers, or the number and the lengths of texts."""
    values: list[tuple[str, int]] = Field(default_factory=list)
    """Values, and the number of questions that have each; all values if there are few."""
    bars: list[int] = Field(default_factory=list)
    """A histogram of numbers: bars of equal width from the lowest to the highest number."""
    listed: list[tuple[str, int]] = Field(default_factory=list)
    """The values that a person can list, and the number of questions that have each."""
    more: int = 0
    """Number of values beyond ``listed``."""


class Covers(_Wire):
    """What one answer to many questions covers."""

    n: int
    """The number of questions."""
    inputs: list[Spread] = Field(default_factory=list)


class FormItem(_Wire):
    """An open question. ``spec`` is the value of ``forms.Form.spec()``, or None without fields."""

    type: Literal["form"] = "form"
    key: str
    interrupt: str
    call: str
    """The key of the call that the question belongs to, or empty."""
    tool: str
    """The tool or flow that asks; empty if the header names it."""
    path: str = ""
    title: str
    """The metadata's message, or a sentence that names the tool."""
    note: str | None = None
    facts: list[Fact] = Field(default_factory=list)
    """The metadata's other fields, and the exact input if a person approves it and cannot edit it."""
    preview: list[Rich] = Field(default_factory=list)
    """The effect of approving, from the tool's ``preview`` function; drawn above the buttons."""
    preview_note: str | None = None
    """The reason why there is no preview yet, such as incomplete input."""
    preview_error: str | None = None
    """The error of the ``preview`` function, in one line; approving still works."""
    spec: dict[str, Any] | None = None
    drafts: Any = None
    """The unsent input to restore after a reload, or None for an untouched form."""
    named: str = ""
    """A description of the fields, if the title has none."""
    instead: Instead | None = None
    actions: list[Action]
    """The buttons; empty if an outside system answers, because the page then only shows the question."""
    remember: list[Remember] = Field(default_factory=list)
    """Rules that an approval may add, offered in a menu as long as no field is changed."""
    approval: bool = False
    """Whether the form is an approval, in which Enter alone never submits and digit keys choose nothing."""
    expires_at: float | None = None
    group: str = ""
    """Equal for similar questions, which the page draws as one table; empty for a question that is drawn alone."""
    input: list[Fact] = Field(default_factory=list)
    """The exact input of the call, for the table; empty without a group."""
    look: list[str] = Field(default_factory=list)
    """The odd values, each with its name and the reason: an answer to the table covers the question only once a person
    has opened it."""
    covers: Covers | None = None
    """The values of the other questions in the table; only in the first item of a group."""


class RecordItem(_Wire):
    """An answered question, in one line: ``title`` · ``decision``, details below if there are any."""

    type: Literal["record"] = "record"
    key: str
    title: str
    decision: str
    tone: Literal["good", "bad", "plain"] = "good"
    details: list[Fact] = Field(default_factory=list)
    after: float | None = None
    """Seconds that the person took to answer."""


NoticeActionName = Literal[
    "stop", "show", "go_on", "take", "leave", "notify", "quiet", "blocked", "edit", "shorten"
]
"""``take`` takes over the run: the first press asks for confirmation, the second press confirms; ``leave`` cancels.
``notify`` and ``quiet`` report that the page has turned the browser's notifications on or off. ``blocked``
reports that the browser blocks notifications. ``edit`` takes the run's prompt into the message box, in the page alone."""


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
    """The end of a wait in Unix seconds; the page shows a countdown."""


class MessageItem(_Wire):
    """A person's message: the prompt with its files, or a message that was sent while the run was running."""

    type: Literal["message"] = "message"
    key: str
    text: str
    note: str = ""
    """The reason why the model does not have the message yet."""
    files: list[Rich] = Field(default_factory=list)
    """The message's files: pictures, and the names of other files, each with a description in words."""
    editable: bool = False
    """Whether the person can edit the message: a prompt, or a message that waits."""


Item: TypeAlias = Annotated[
    TextItem | ReasoningItem | CallItem | FormItem | RecordItem | NoticeItem | MessageItem,
    Field(discriminator="type"),
]


class Span(_Wire):
    """A span of the time strip, in seconds from the run's start; ``end`` is None until the span ends."""

    lane: Literal["model", "tool", "inner", "wait"]
    """``inner``: the model of an inner agent."""
    start: float
    end: float | None = None
    key: str = ""
    """The key of the call's item, unless the span stands for several calls."""


class Count(_Wire):
    """A count in the footer, in words; ``about`` is the tooltip. The page puts the time of work at ``{t}``."""

    text: str
    about: str = ""


class PlanStep(_Wire):
    """One step of the plan in the header."""

    text: str
    state: Literal["done", "now", "open"]


class CardHead(_Wire):
    """The card's frame: header, pill and footer."""

    run: str
    agent: str
    prompt: str = ""
    status: RunStatus
    status_text: str
    started_at: float = 0.0
    model: str = Field(default="", exclude=True)
    """The model's name; empty for a flow."""
    turns: int = Field(default=0, exclude=True)
    max_turns: int = Field(default=20, exclude=True)
    """0 if no model answers, as in a flow."""
    tokens: int = Field(default=0, exclude=True)
    cost: float | None = Field(default=None, exclude=True)
    """US dollars; None unless the cost of all responses is known."""
    known_cost: float = Field(default=0, exclude=True)
    """The known part of the cost."""
    cached: int = Field(default=0, exclude=True)
    """The number of input tokens that the model's server had cached."""
    reasoning: int = Field(default=0, exclude=True)
    """The number of tokens of hidden reasoning."""
    counts: list[Count] = Field(default_factory=list)
    """The counts in words, as a page gets them."""
    questions: int = 0
    """The number of questions for a person, without questions that another system answers."""
    decisions: int = Field(default=0, exclude=True)
    """The number of people's decisions of any kind."""
    decisions_by_you: int = Field(default=0, exclude=True)
    """The number of decisions that you made in a card."""
    signing_in: bool = False
    """Whether the run waits for a person to sign in, in a form beside the card."""
    stopping: bool = False
    """Whether somebody pressed Stop and unfinished calls have not ended yet."""
    chat: bool = False
    """Whether the card shows a thread of runs, with a message box; the counts are sums over these runs."""
    asks: bool = False
    """Whether the run has ended, and the page offers a follow-up below it; only in live cards."""
    spans: list[Span] = Field(default_factory=list)
    plan: list[PlanStep] = Field(default_factory=list)
    """The checklist of ``ctx.plan``."""


class View(_Wire):
    """Everything that a card draws."""

    head: CardHead
    items: list[Item] = Field(default_factory=list)


class Put(_Wire):
    """Insert ``item`` at ``index``, or replace the item with the same key in its place."""

    op: Literal["put"] = "put"
    item: Item
    index: int


class Remove(_Wire):
    """Remove the item with this key."""

    op: Literal["remove"] = "remove"
    key: str


class Raw(_Wire):
    """Append ``text`` to the open end of a text or reasoning item."""

    op: Literal["raw"] = "raw"
    key: str
    text: str


class Block(_Wire):
    """Change the open end of a text item: its first ``start`` and last ``end`` characters stay, ``html`` is between.

    The previous open end is one piece of HTML, with the raw text inserted as in ``shorthand.open_end``. In the
    result, each of ``ends`` is the end of a finished block. The rest is the new tail, and ``raw`` is the new raw text.
    Characters are UTF-16 units. ``html`` is encoded by ``shorthand.short``.
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
    head: CardHead


Op: TypeAlias = Annotated[Put | Remove | Raw | Block | Print | SetHead, Field(discriminator="op")]


class Attached(_Wire):
    """A file that the kernel has for a message which is not sent yet."""

    id: str
    name: str
    size: int


class Snapshot(_Wire):
    """The whole state of a card; the next patch has the number ``seq`` + 1."""

    type: Literal["snapshot"] = "snapshot"
    seq: int
    view: View
    now: float
    """The kernel's Unix time, so that the front end's clock need not be right."""
    texts: dict[str, str] = Field(default_factory=dict)
    """The texts that the front end itself shows, without texts that the page has already."""
    written: str = ""
    """The unsent text in a chat's message box, restored after a reload; never part of the widget's trait."""
    attached: list[Attached] = Field(default_factory=list)
    """The files in the message box, restored after a reload: names and sizes, without content."""


class Patch(_Wire):
    """Operations in order; a front end whose last number is not ``seq`` - 1 sends ``Hello`` again."""

    type: Literal["patch"] = "patch"
    seq: int
    ops: list[Op]


class FieldError(_Wire):
    """An error at the field with this id, or at the form as a whole if it is None."""

    field: str | None
    message: str
    cells: list[tuple[int, str, str]] = Field(default_factory=list)
    """In a grid: the row, the key of the column and the message of each error; an empty key for a whole row."""


class SubmissionReceipt(_Wire):
    """The outcome of a submission. Every page receives it; the sender recognizes it by ``submission``."""

    type: Literal["receipt"] = "receipt"
    submission: str
    interrupt: str
    ok: bool
    errors: list[FieldError] = Field(default_factory=list)


class Drawn(_Wire):
    """A reference to the text of an item, which the page has: as HTML, or as plain text in a plain-text bundle."""

    key: str


Piece: TypeAlias = str | tuple[int, int] | Drawn
"""A string, or a range of the style sheet that a page has for all cards, or a reference to an item's text."""


class Keep(_Wire):
    """The static form of a card, for the saved notebook, because a widget cannot be drawn without its kernel."""

    type: Literal["keep"] = "keep"
    view: str
    """The model id of the displayed widget, by which the page finds the outputs that show it."""
    number: int = 0
    """The number of the bundle. An unchanged bundle is left out; a page without this bundle asks for it."""
    bundle: dict[str, list[Piece]] = Field(default_factory=dict)
    """HTML and text that need no kernel, by mime type."""
    seq: int | None = None
    """The number of the last patch before a bundle with references; a page at another number asks for all text."""
    ended: bool = False
    """Whether the card has ended: the page shows the bundle in the widget's place, and sends a confirmation."""
    over: bool = False
    """Whether the card has nothing unfinished: the bundle replaces the widget once the kernel has stopped."""


class Name(_Wire):
    """A name after ``@`` or ``/``, and a short description: never a value."""

    name: str
    about: str = ""


class Names(_Wire):
    """The reply to ``Complete``, with the request's ``text``."""

    type: Literal["names"] = "names"
    text: str
    names: list[Name]


class Copied(_Wire):
    """The reply to ``Copy``: the text as the model wrote it, such as Markdown; empty if there is none."""

    type: Literal["copied"] = "copied"
    key: str
    text: str


FromKernel: TypeAlias = Annotated[
    Snapshot | Patch | SubmissionReceipt | Names | Copied | Keep, Field(discriminator="type")
]


class Hello(_Wire):
    """A page's request for a snapshot. Unless ``again``, the kernel assumes no focus and no open items."""

    type: Literal["hello"] = "hello"
    keeps: bool = False
    """Whether the page writes the content of ``Keep`` into its notebook."""
    stays: bool = False
    """Whether the page leaves a drawn card as it is when the output that shows the card is updated."""
    again: bool = False
    """Whether the page was connected before, and missed a patch."""


class FormAnswer(_Wire):
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
    """Unsent input, which is restored after a reload; never secrets."""

    type: Literal["drafts"] = "drafts"
    interrupt: str
    """The question's id; empty for a chat's message box, whose draft is a string."""
    drafts: Any
    instead: bool = False
    """Whether the drafts belong to ``FormItem.instead``."""


class Press(_Wire):
    """A button of a notice was pressed."""

    type: Literal["press"] = "press"
    notice: str
    """The notice's key."""
    action: NoticeActionName


class Stop(_Wire):
    """The Stop button."""

    type: Literal["stop"] = "stop"


class RetryPress(_Wire):
    """The Retry button of a run that failed."""

    type: Literal["retry"] = "retry"


class Focus(_Wire):
    """Whether anything in the card has focus or is selected, and the keys of the open items."""

    type: Literal["focus"] = "focus"
    busy: bool
    opened: list[str] = Field(default_factory=list)


class Keeps(_Wire):
    """A page has written the last ``Keep`` into its notebook; or (not ``ended``) it has no bundle and asks for it."""

    type: Literal["keeps"] = "keeps"
    ended: bool = False


class SaidFile(_Wire):
    """A file that was dropped, pasted or picked; ``data`` is base64."""

    name: str
    media_type: str
    data: str


class Attach(_Wire):
    """A file for the next message, which the kernel stores; with ``file`` None, the kernel removes the file."""

    type: Literal["attach"] = "attach"
    id: str
    """Random, made by the page for each file."""
    file: SaidFile | None


class Say(_Wire):
    """A message from a chat's box. ``submission`` is random; a ``SubmissionReceipt`` without interrupt answers it."""

    type: Literal["say"] = "say"
    submission: str
    text: str
    files: list[str] = Field(default_factory=list)
    """The ids of the attached files."""
    instead: str | None = None
    """The key of the message that the new message replaces."""
    keep: list[int] = Field(default_factory=list)
    """The files of the replaced message that the new message has too, counted from 0."""


class Complete(_Wire):
    """A request for names that start with ``text``: ``@`` variables of the notebook, ``/`` tools of the agent."""

    type: Literal["complete"] = "complete"
    text: str


class Copy(_Wire):
    """A request for the text of the answer with this key, which a person copies."""

    type: Literal["copy"] = "copy"
    key: str


FromFrontEnd: TypeAlias = Annotated[
    Hello
    | FormAnswer
    | Drafts
    | Press
    | Stop
    | RetryPress
    | Focus
    | Attach
    | Say
    | Complete
    | Copy
    | Keeps,
    Field(discriminator="type"),
]

MAX_TEXT = 10 * 2**20
"""Characters of a page's message; Jupyter's server accepts no larger messages."""
_from_front_end: TypeAdapter[FromFrontEnd] = TypeAdapter(FromFrontEnd)


def parse_message(content: Any) -> FromFrontEnd:
    """Return a page's message, from JSON that the kernel has parsed and that has at most ``MAX_TEXT`` characters.

    Raises:
        ValueError: the content is not a valid message.
    """
    return _from_front_end.validate_python(content, strict=False)
