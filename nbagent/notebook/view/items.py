"""The drawn items while they change: cheap mutable state, with wire models made only on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, TypeAlias

from nbagent.core.base.controls import without_controls
from nbagent.core.base.events import AnswerForm, HostedRan, StepFinished, ToolFinished
from nbagent.core.base.file_parts import KEPT, bracketed_label, label
from nbagent.core.base.model import HostedCall
from nbagent.core.tools.answer_type import Misfit, partial_of, value_of
from nbagent.core.tools.call_output import MAX_PRINTED
from nbagent.core.tools.result_text import LEFT_OUT
from nbagent.notebook.render import answer, arguments, facts, rich, shorthand, sources
from nbagent.notebook.render.markdown import MAX_PLAIN, Stream
from nbagent.notebook.render.reveal import reveal, terminal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    Block,
    CallItem,
    CallState,
    Fact,
    FormItem,
    Item,
    MessageItem,
    NoticeItem,
    Op,
    Print,
    Progress,
    Put,
    Raw,
    ReasoningItem,
    RecordItem,
    Rich,
    TextItem,
)

FixedItem: TypeAlias = FormItem | RecordItem | NoticeItem | MessageItem | TextItem | CallItem

PARTIAL_EVERY = 0.25
"""Seconds between two drawings of a growing answer."""
MAX_PARTIAL = 100_000
"""Characters of an answer that are drawn before it is complete."""
HEAVY = 15_000
"""Characters of a call's drawn output. For larger outputs, progress alone is sent only once a second."""


class ViewNode:
    """One item: ``sent`` is whether the page has it, ``stale`` whether it must be sent whole."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.sent = False
        self.stale = True

    def wire(self) -> Item:
        """The item in its current form."""
        raise NotImplementedError

    def ops(self, now: float, index: int) -> list[Op]:
        """The operations that bring the page up to date; ``index`` is the place of the item."""
        if not self.stale or not self.due(now):
            return []
        self.sent, self.stale = True, False
        return [Put(item=self.wire(), index=index)]

    def due(self, _now: float) -> bool:
        """Whether it is time to send the item whole."""
        return True

    @property
    def is_sent(self) -> bool:
        """Whether there is nothing left to send."""
        return not self.stale

    @property
    def hidden(self) -> bool:
        """Whether another item is drawn instead of this item."""
        return False


class TextNode(ViewNode):
    """Text of the model, while it streams and when it is complete."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.stream = Stream()
        self._blocks_sent = 0
        self._open = "", ""
        """Tail and raw text as the page has them."""
        self._closed = False
        self._close_sent = False

    def close(self, text: str) -> None:
        """Set the whole text. The drawn text stays if the streamed text was the same."""
        if not self.stream.close(text):
            self.stale = True
        self._closed, self._close_sent = True, False

    @property
    def source(self) -> str:
        """The text as the model wrote it, so far; empty if a value is drawn."""
        return self.stream.text

    @property
    def is_sent(self) -> bool:
        """Whether there is nothing left to send."""
        done = self._close_sent if self._closed else self.stream.is_sent
        return done and not self.stale

    def wire(self) -> TextItem:
        """The item in its current form."""
        stream = self.stream
        pending = "".join(stream.pending).removesuffix("\r")  # a newline may still follow
        raw = stream.raw + without_controls(pending)[:MAX_PLAIN]
        return TextItem(key=self.key, blocks=list(stream.blocks), tail=stream.tail, raw=raw)

    def ops(self, now: float, index: int) -> list[Op]:
        """The operations that bring the page up to date."""
        if self.is_sent:
            return []
        stream = self.stream
        appended = None if self._closed else stream.advance(now)
        finished = stream.blocks[self._blocks_sent :]
        self._blocks_sent, self._close_sent = len(stream.blocks), self._closed
        was_open, self._open = self._open, (stream.tail, stream.raw)
        if self.stale:
            return super().ops(now, index)
        if appended is None:
            return [self._block(finished, shorthand.open_end(*was_open))]
        return [Raw(key=self.key, text=appended)] if appended else []

    def _block(self, finished: list[str], was_open: str) -> Block:
        """The change since the last message, in the shorthand of the wire."""
        drawn = "".join([*finished, self.stream.tail])
        start = shorthand.common_start(was_open, drawn)
        end = shorthand.common_start(was_open[start:][::-1], drawn[start:][::-1])
        return Block(
            key=self.key,
            start=shorthand.units(was_open[:start]),
            end=shorthand.units(was_open[len(was_open) - end :]),
            html=shorthand.short(drawn[start : len(drawn) - end]),
            ends=[*accumulate(map(shorthand.units, finished))],
            raw=self.stream.raw,
        )


class AnswerNode(TextNode):
    """Text of a model whose final answer is JSON: drawn as the JSON value, as far as it has arrived.

    Text that is not JSON is drawn like any other text.
    """

    def __init__(self, key: str, form: AnswerForm) -> None:
        super().__init__(key)
        self._form = form
        self._text = ""
        self._html: str | None = None
        """The drawn value; None if the text is drawn as text."""
        self._value: Any = None
        self._due = float("-inf")

    def close(self, text: str) -> None:
        """Set the whole text."""
        try:
            value = value_of(text, self._form)
        except Misfit:
            self._html = None
            self.stale = True
            super().close(text)
        else:
            self.answer(value)

    def answer(self, value: Any) -> None:
        """Set the value, whatever the text was."""
        self.stream.pending.clear()
        if not self._closed or self._html is None or not facts.same_json(value, self._value):
            self._value, self._html = value, answer.drawn(value, is_complete=True)
            self.stale = True
        self._closed = self._close_sent = True

    @property
    def source(self) -> str:
        """The text as the model wrote it, so far; empty if a value is drawn."""
        return super().source if self._html is None else ""

    @property
    def is_sent(self) -> bool:
        """Whether there is nothing left to send."""
        if self._html is None:
            return super().is_sent
        return not (self.stale or self.stream.pending)

    def wire(self) -> TextItem:
        """The item in its current form."""
        if self._html is None:
            return super().wire()
        if self._closed:
            return TextItem(key=self.key, blocks=[self._html])
        return TextItem(key=self.key, tail=self._html)

    def ops(self, now: float, index: int) -> list[Op]:
        """The operations that bring the page up to date."""
        if (
            self._html is None
            and not self._closed
            and self.stream.text.lstrip()[:1] in ("{", "[", "`")  # JSON, or a code block with it
        ):
            self._html = ""
        if self._html is None:
            return super().ops(now, index)
        if not self._closed and self.stream.pending and now >= self._due:
            self._grow(now)
        return ViewNode.ops(self, now, index)

    def _grow(self, now: float) -> None:
        room = max(0, MAX_PARTIAL - len(self._text))
        self._text += "".join(self.stream.pending)[:room]
        self.stream.pending.clear()
        self._due = now + PARTIAL_EVERY
        if not room:
            return
        value = partial_of(self._text, self._form)
        html = "" if value is None else answer.drawn(value, is_complete=False)
        if html != self._html:
            self._html, self.stale = html, True


_HEADING = re.compile(r"^\*\*([^*\n]+)\*\*[ \t]*$", re.MULTILINE)
"""A line that is all bold: the heading of a paragraph in a reasoning summary."""


class ReasoningNode(ViewNode):
    """Reasoning as plain text. Complete reasoning shows headings without asterisks."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.pending: list[str] = []
        self._text = ""
        self._sent_length = 0

    def close(self, text: str) -> None:
        """Set the complete reasoning."""
        self._work_in()
        text = _HEADING.sub(r"\1", facts.bounded(text, MAX_PLAIN))
        if (cleaned := without_controls(text)) != self._text:
            self._text, self.stale = cleaned, True

    def _work_in(self) -> None:
        """Add the pending text, up to ``MAX_PLAIN`` characters in all."""
        room = max(0, MAX_PLAIN - len(self._text))
        self._text += without_controls("".join(self.pending))[:room]
        self.pending.clear()

    @property
    def is_sent(self) -> bool:
        """Whether there is nothing left to send."""
        return not (self.stale or self.pending) and self._sent_length == len(self._text)

    def wire(self) -> ReasoningItem:
        """The item in its current form."""
        self._work_in()
        return ReasoningItem(key=self.key, text=self._text)

    def ops(self, now: float, index: int) -> list[Op]:
        """The operations that bring the page up to date."""
        self._work_in()
        new, self._sent_length = self._text[self._sent_length :], len(self._text)
        if self.stale:
            return super().ops(now, index)
        return [Raw(key=self.key, text=new)] if new else []


class FixedNode(ViewNode):
    """A form, a record, a notice, a message, a line of sources or a plain row: replaced as a whole."""

    def __init__(self, item: FixedItem) -> None:
        super().__init__(item.key)
        self.item = item

    def replace(self, item: FixedItem) -> None:
        """Put another item in the same place."""
        self.item, self.stale = item, True

    def wire(self) -> Item:
        """The item in its current form."""
        return self.item


class Printout:
    """Printed text: appended to if possible, drawn again if lines change."""

    def __init__(self, text: str = "") -> None:
        self._source = [text] if text else []
        self._size = len(text)
        self._pending: list[str] = []
        self._left_out = 0
        self.shown = terminal(text)

    @property
    def is_sent(self) -> bool:
        """Whether everything is in ``shown``."""
        return not self._pending

    @property
    def text(self) -> str:
        """The whole text, including pending text, and a note if characters are left out."""
        text = terminal("".join([*self._source, *self._pending])) if self._pending else self.shown
        if not self._left_out:
            return text
        return f"{text}\n{TEXTS['more_printed'].format(n=f'{self._left_out:,}')}\n"

    def add(self, text: str) -> bool:
        """Add text; return False if some text is left out, because the limit is reached."""
        room = max(0, MAX_PRINTED - self._size)
        self._size += len(text)
        self._left_out += max(0, len(text) - room)
        if room:
            self._pending.append(text[:room])
        return not self._left_out

    def work_in(self) -> str | None:
        """Add pending text to ``shown``. Return the appended text, or None if earlier lines have changed."""
        new = "".join(self._pending)
        self._pending.clear()
        if not new:
            return ""
        self._source.append(new)
        if "\r" in new or "\x1b" in new:
            self.shown = terminal("".join(self._source))
            return None
        new = reveal(new)
        self.shown += new
        return new


def _one_line(text: str) -> str:
    return reveal(" ".join(text[: 2 * facts.MAX_BRIEF].split())[: facts.MAX_BRIEF])


def first_line(text: str) -> str:
    """The first meaningful line of an error, short enough for a row."""
    return _one_line(next((line for line in text.split("\n") if line.strip()), ""))


def _facts(input_: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[Fact]:
    return arguments.drawn(facts.facts_of(input_, before=before, room=facts.MAX_TEXT), input_)


class CallNode(ViewNode):
    """A tool call. Who changes it, redraws it by ``Board.redraw``."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(key)
        self.path = path
        self.name = ""
        self.state: CallState = "preparing"
        self.ended_as: CallState | None = None
        """The final state of a call that was still open when its run, or the call around it, ended; else None."""
        self.arguments = ""
        self.input: dict[str, Any] = {}
        """The input that the model proposed."""
        self._shown = self.input
        self.elapsed: float | None = None
        self.started_at: float | None = None
        self._facts: list[Fact] = []
        self._brief = ""
        self._progress: Progress | None = None
        self._printed = Printout()
        self._outputs: dict[str | int, list[Rich]] = {}
        self._result_rich: list[Rich] = []
        self._result: str | None = None
        self._traceback: Callable[[], str] = str
        self._decisions: list[RecordItem] = []
        self._given = self._facts
        """The facts of the input before anybody changed it."""
        self._only_progress = False
        self._put_at = float("-inf")

    def touch(self) -> None:
        """Note that the item must be sent whole."""
        self.stale, self._only_progress = True, False

    def prepare(self, name: str | None, arguments: str) -> None:
        """Add a streamed part of the call: the name, or more of the arguments."""
        if name:
            self.name = _one_line(name)
            self.touch()
        if len(self.arguments) <= facts.MAX_BRIEF:
            self.arguments += arguments[: 2 * facts.MAX_BRIEF]
            self._brief = _one_line(self.arguments)
            self.touch()

    def requested(self, name: str, input_: dict[str, Any], raw: str | None) -> None:
        """Set the complete call."""
        self.name, self.input, self.arguments = _one_line(name), input_, ""
        self._shown = input_
        if raw is None:
            self._facts, self._brief = _facts(input_), facts.brief(input_)
        else:
            self._facts = [Fact(label="arguments", value=facts.shown(raw, facts.MAX_TEXT))]
            self._brief = _one_line(raw)

    def gets(self, input_: dict[str, Any]) -> None:
        """Set the input that the body receives: the model's, or the changed input of a person or middleware."""
        if input_ is self._shown:
            return
        self._shown = input_
        self._facts = _facts(input_, before=self.input)
        self._brief = facts.brief(input_)

    def started(self, at: float) -> None:
        """Note that the call's body is running."""
        self.state, self.started_at, self._progress = "running", at, None
        self.touch()

    def stopped(self, at: float, state: CallState) -> None:
        """Set the call's new state, as its body no longer runs."""
        if self.started_at is not None:
            self.elapsed = (self.elapsed or 0.0) + max(0.0, at - self.started_at)
        self.started_at, self.state, self._progress = None, state, None

    def answered(self, output: Any, error: str | None = None) -> None:
        """Show an answer as the call's result, or an error as the reason why there is no result."""
        content = output if error is None else error
        self.state = "done" if error is None else "failed"
        self._result = None if content is None else facts.result(content)

    def decided(self, record: RecordItem) -> None:
        """Record the decision on a question, and mark changed values in the call's input."""
        details = [fact for fact in record.details if fact.changed_from is None]
        changed = {fact.label: fact for fact in record.details if fact.changed_from is not None}
        if not self._decisions:
            self._given = self._facts
        self._facts = [changed.pop(fact.label, fact) for fact in self._facts] + [*changed.values()]
        self._decisions.append(record.model_copy(update={"details": details}))

    def undecided(self) -> None:
        """Remove the last record, as its question is asked again."""
        self._decisions.pop()

    def clear_decisions(self) -> None:
        """Remove all recorded decisions, and the marks of changed values."""
        if self._decisions:
            self._facts = self._given
            self._decisions.clear()

    def finished(self, event: ToolFinished, traceback: Callable[[], str]) -> None:
        """Set the call's result; the traceback of a failed call is available only later."""
        self._traceback = traceback if event.error else str
        self.stopped(event.at, "failed" if event.error else "done")
        self.shows(event.printed, event.displays)
        drawn = event.display is not None and rich.is_rich(event.display)
        self._result_rich = rich.render(event.display or {}) if drawn else []
        has_no_text = bool(self._result_rich) or (event.output is None and not event.error)
        has_no_text = has_no_text or event.output in [
            bracketed_label(file, sized=False) for file in event.files
        ]
        self._result_rich += rich.files(event.files, sized=False)
        self._result = None if has_no_text else facts.result(event.output)
        displayed = [*(event.display or {}).values()]
        if has_no_text or not isinstance(event.output, str) or len(displayed) != 1:
            return
        whole, received = displayed[0], len(event.output)
        size = len(whole if isinstance(whole, str) else facts.shown(whole))
        left_out = LEFT_OUT.search(event.output)
        if left_out is not None:  # the value may be longer than what is stored of it
            size = max(size, int(left_out[1].replace(",", "")))
        if size > received:  # show the whole return value, as far as it is stored
            note = TEXTS["result_shortened"].format(n=f"{received:,}", of=f"{size:,}")
            self._result = f"{note}\n\n{facts.result(whole, facts.MAX_APPROVED)}"

    def row_ended(self, event: StepFinished) -> None:
        """Show the result of an approved call that the body's own code ran."""
        outcome = event.value if event.error is None else event.error
        self.state = "done" if event.error is None else "failed"
        self.started_at, self.elapsed = None, event.seconds
        self._result = None if outcome is None else facts.result(outcome)

    @property
    def has_more(self) -> bool:
        """Whether the call has more to show than its input."""
        return bool(self._printed.text or self._outputs or self._result or self._decisions)

    @property
    def is_rich(self) -> bool:
        """Whether the call's result is rich output, such as a table or a picture."""
        return bool(self._result_rich)

    def shows(self, printed: str, displays: list[dict[str, Any]]) -> None:
        """Show the stored output: everything that the call has printed and displayed so far."""
        self._printed = Printout(printed)
        self._outputs = {i: rich.render(bundle) for i, bundle in enumerate(displays)}

    def printed(self, text: str) -> None:
        """Add printed text."""
        if not self._printed.add(text):  # only the number of omitted characters changes
            self._only_progress = self._only_progress or not self.stale
            self.stale = True

    def displayed(self, bundle: dict[str, Any], display_id: str | None) -> None:
        """Add a display, or replace the one with the same ``display_id``."""
        key = len(self._outputs) if display_id is None else display_id
        self._outputs[key] = rich.render(bundle)
        self.touch()

    def progressed(self, fraction: float | None, text: str) -> None:
        """Show the tool's progress."""
        self._progress = Progress(fraction=fraction, text=_one_line(text))
        self._only_progress = self._only_progress or not self.stale
        self.stale = True

    @property
    def is_sent(self) -> bool:
        """Whether there is nothing left to send."""
        return not self.stale and self._printed.is_sent

    def due(self, now: float) -> bool:
        """Whether to send the item now. Progress alone is sent ten times a second, or once if the output is large."""
        if not self._only_progress:
            return True
        weight = sum(len(r.data) for pieces in self._outputs.values() for r in pieces)
        return now - self._put_at >= (1.0 if weight + len(self._printed.shown) > HEAVY else 0.1)

    def wire(self) -> CallItem:
        """The item in its current form."""
        has_details = any(record.details for record in self._decisions[-1:])
        is_result_shown = self.state == "done" and has_details  # in the last decision
        return CallItem(
            key=self.key,
            name=self.name,
            path=self.path,
            brief=self._brief_line(),
            state=self.ended_as or self.state,
            input=self._facts,
            started_at=self.started_at,
            elapsed=self.elapsed,
            progress=self._progress,
            printed=self._printed.text,
            outputs=[*(r for drawn in self._outputs.values() for r in drawn), *self._result_rich],
            result=None if is_result_shown else self._result,
            traceback=reveal(self._traceback()),
            decisions=list(self._decisions),
        )

    def _brief_line(self) -> str:
        """The text of the row: the error, the title of the last question, or the input."""
        last = self._decisions[-1] if self._decisions else None
        if self.state == "failed" and self._result:  # the row names the tool already
            return first_line(self._result).removeprefix(f"The tool {self.name} failed: ")
        return self._brief if last is None or last.title == self.name else last.title

    def ops(self, now: float, index: int) -> list[Op]:
        """The operations that bring the page up to date."""
        new = self._printed.work_in()
        if new is None:
            self.touch()
        put = super().ops(now, index)
        if put:
            self._only_progress, self._put_at = False, now
            return put
        return [Print(key=self.key, text=new)] if new else []


class HostedNode(FixedNode):
    """A call that the model's provider ran, as a row."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(CallItem(key=key, name="", path=path, state="preparing"))
        self._path = path

    def show_call(self, call: HostedCall | HostedRan) -> None:
        """Show the call. Once its response is stored, an unfinished call is shown as stopped."""
        running: CallState = "cancelled" if isinstance(call, HostedRan) else "running"
        drawn = [Rich(kind="links", data=sources.listed(call.sources))] if call.sources else []
        for file in call.files:
            drawn += rich.render({file["media_type"]: file["data"]})
        item = CallItem(
            key=self.key,
            name=_one_line(call.name),
            path=self._path,
            brief=facts.brief(call.input),
            state=running if call.status == "running" else call.status,
            input=_facts(call.input),
            outputs=drawn,
            result=None if call.output is None else facts.result(call.output),
        )
        if item != self.item:
            self.replace(item)


class StepNode(FixedNode):
    """A step of a body, as a row below the body's call."""

    def __init__(
        self, key: str, path: str, name: str, input_: Mapping[str, Any] | None = None
    ) -> None:
        self._bare = CallItem(key=key, name=_one_line(name), path=path, state="running")
        if input_:
            drawn = {"input": _facts(input_), "brief": facts.brief(dict(input_))}
            self._bare = self._bare.model_copy(update=drawn)
        super().__init__(self._bare)
        self.runs = False
        """Whether the step was started and has no result yet."""

    def began(self, at: float) -> None:
        """Note that the step is running, for the first time or again."""
        self.runs = True
        self.replace(self._bare.model_copy(update={"started_at": at}))

    def ended(self, event: StepFinished) -> None:
        """Set the step's value or error."""
        self.runs = False
        outcome = event.value if event.error is None else event.error
        result, brief = None, self._bare.brief
        if isinstance(outcome, Mapping) and KEPT in outcome:
            result = brief = reveal(f"[{label(outcome).removeprefix('file ')}]")
        elif outcome is not None:
            result = facts.result(outcome)
            brief = brief if brief and event.error is None else facts.brief_of(outcome)
        state = "done" if event.error is None else "failed"
        update = {"state": state, "elapsed": event.seconds, "result": result, "brief": brief}
        self.replace(self._bare.model_copy(update=update))
