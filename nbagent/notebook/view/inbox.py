"""The view of an inbox: the open questions of a store as forms, and settled questions as records."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbagent.core.base.events import Resolved
from nbagent.core.base.process import describe_process, this_process
from nbagent.core.stored.inbox import Continuation, InboxEntry, InboxQuestion, Stranded
from nbagent.core.tools.tool import Tool
from nbagent.forms.secrets import may_hold_secret
from nbagent.notebook import kernel
from nbagent.notebook.render import amounts, facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    CardHead,
    Fact,
    FormItem,
    Item,
    NoticeAction,
    NoticeItem,
    RecordItem,
)

from .groups import covered, grouped
from .question_kinds import Types
from .questions import Question, changed_form
from .table import TableView, draw_state

PAGE = 50
"""Number of questions that are drawn at first, and that each press of "Show more" adds."""
MAX_RECORDS = 100
"""Maximum number of answered questions that stay in view."""
NAMED = 5
"""Maximum number of runs that the ``STRANDED`` notice names."""
AGES = {"age_hour": 3600.0, "age_day": 86_400.0, "age_week": 604_800.0}
"""The choices of the age filter: the key of the text, and the minimum age in seconds."""
_ALL = {"agent": "all_agents", "tool": "all_tools", "age": "any_age"}
"""The key of the text of each filter's first choice."""
STRANDED = "stranded"
"""The key of the notice of runs that no process is running."""
MORE = "more"
"""The key of the notice that more questions are waiting."""


@dataclass
class _Drawn:
    """One drawn question, or its record."""

    asked: InboxQuestion
    continuation: Continuation
    question: Question
    item: FormItem | RecordItem
    tool: Tool[..., Any] | None = None
    """The tool that asks, if the question's run continues in this process."""
    earlier: bool = False
    """Whether the question is shown below all others, see ``InboxEntry.is_earlier``."""

    @property
    def waits(self) -> bool:
        return isinstance(self.item, FormItem)


class InboxView(TableView):
    """The view of an inbox, whose rows are forms and records."""

    def __init__(self, scope_text: str) -> None:
        super().__init__(("agent", "tool", "age"))
        self._scope_text = scope_text
        self._room = PAGE
        self._drawn: dict[str, _Drawn] = {}
        """The drawn questions, by key: ``run/interrupt``."""
        self._waiting = self._for_person_count = self._fresh = 0
        """Numbers of open questions, of open questions for a person, and of new questions."""
        self._known: set[tuple[str, str]] | None = None
        """The keys of the questions that were open at the last look; None before the first look."""
        self._is_missing = False
        self.stranded: list[Stranded] = []
        """The runs that no process is running, as they are shown."""

    def look(
        self, chosen: Sequence[InboxQuestion], source: InboxEntry, *, busy: bool = False
    ) -> None:
        """Draw the open questions. Do not call this on an event loop: making many forms takes long.

        Args:
            chosen: the matching questions, oldest first.
            source: the source of all open questions.
            busy: whether somebody is using a form. Then a form whose facts alone have changed is not drawn again.
        """
        wanted = {_key(one): one for one in chosen}
        waiting_keys = {_key(one) for one in source.all}
        with self._lock:
            before = dict(self._drawn)
        updated: dict[str, _Drawn] = {}
        for key, drawn in before.items():
            if not drawn.waits:
                updated[key] = drawn
            elif key not in waiting_keys:
                updated[key] = replace(drawn, item=_record(key, drawn, source.settled(drawn.asked)))
            elif key in wanted:
                updated[key] = _followed(drawn, wanted[key], source, busy=busy)
        room = self._room - sum(1 for drawn in updated.values() if drawn.waits)
        stranded, is_new = source.stranded(), source.is_missing
        new_keys = [key for key in wanted if key not in updated][: max(0, room)]
        updated |= {key: _new_drawn(wanted[key], source) for key in new_keys}
        with self._lock:
            typed = {key: drawn.item for key, drawn in self._drawn.items()}
            for key, drawn in updated.items():
                updated[key] = _with_typed(drawn, typed.get(key))
            updated = _with_covers(updated)
            self._drawn = dict(sorted(updated.items(), key=lambda each: each[1].asked.at))
            self.stranded, self._is_missing = stranded, is_new
            settled = [key for key, drawn in self._drawn.items() if not drawn.waits]
            for key in settled[: max(0, len(settled) - MAX_RECORDS)]:
                del self._drawn[key]
            self._count(chosen, source)

    def show_more(self) -> None:
        """Make room for more questions; the next look draws them."""
        with self._lock:
            self._room += PAGE

    def seen(self) -> None:
        """Note that somebody has seen the new questions."""
        with self._lock:
            self._fresh = 0

    def _items(self) -> list[Item]:
        drawn = self._drawn.values()
        items: list[Item] = [one.item for one in drawn if not one.earlier]
        earlier: list[Item] = [one.item for one in drawn if one.earlier]
        if any(one.earlier and one.waits for one in drawn):
            notice = NoticeItem(key="earlier", tone="warn", text=TEXTS["inbox_earlier_help"])
            earlier.insert(0, notice)
        return [*items, *earlier, *super()._items(), *self._notices()]

    def question(self, key: str) -> Question | None:
        """The open question of this key, as it is shown."""
        with self._lock:
            drawn = self._drawn.get(key)
            return drawn.question if drawn is not None and drawn.waits else None

    def open_questions(self) -> list[tuple[Question, Tool[..., Any] | None]]:
        """The drawn questions, each with its tool if its run continues in this process."""
        with self._lock:
            return [(one.question, one.tool) for one in self._drawn.values() if one.waits]

    def asked(self, key: str) -> InboxQuestion | None:
        """The question with this key, open or settled."""
        with self._lock:
            drawn = self._drawn.get(key)
            return None if drawn is None else drawn.asked

    def update_form(
        self, key: str, update: dict[str, Any], *, instead: bool = False, send: bool = True
    ) -> None:
        """Change parts of a question's item as in ``changed_form``; without ``send``, only for later pages."""
        with self._lock:
            drawn = self._drawn.get(key)
            if drawn is None or not isinstance(drawn.item, FormItem):
                return
            before, drawn.item = drawn.item, changed_form(drawn.item, update, instead=instead)
            if not send and self._sent is not None:  # open pages have it already
                items = [drawn.item if one is before else one for one in self._sent.items]
                self._sent = self._sent.model_copy(update={"items": items})

    def _count(self, chosen: Sequence[InboxQuestion], source: InboxEntry) -> None:
        now = {one.key for one in source.all}
        if self._known is not None:
            self._fresh += sum(1 for one in chosen if one.key not in self._known)
        self._known = now
        self._waiting = len(chosen)
        self._for_person_count = sum(1 for one in chosen if one.is_for_person)
        self._fresh = min(self._fresh, self._waiting)

    def _head(self) -> CardHead:
        if self._known is None:
            status_text = TEXTS["inbox_loading"]
        else:
            status_text = amounts.count("away", self._waiting) or TEXTS["inbox_empty"]
        if self._fresh:
            status_text += TEXTS["inbox_new"].format(n=f"{self._fresh:,}")
        return CardHead(
            run="inbox",
            agent=TEXTS["inbox"],
            prompt=TEXTS["no_file"].format(place=self._scope_text)
            if self._is_missing
            else self._scope_text,
            status="interrupted" if self._waiting else "completed",
            status_text=status_text,
            questions=self._for_person_count,
        )

    def draw_filters(self, given: Collection[str], source: InboxEntry) -> None:
        """Draw the filters, without those ``given`` by code; none if fewer than two questions wait."""
        filtered = self.query.filters
        if len(source.all) < 2 and not any(filtered.values()):
            self.state = draw_state(filtered)
            return
        names = {
            "agent": {one.run.agent for one in source.all},
            "tool": {one.interrupt.tool_name for one in source.all},
        }
        choices = {
            name: [(each, reveal(each)) for each in sorted(found) if each]
            for name, found in names.items()
            if name not in given
        }
        choices["age"] = [(key, TEXTS[key]) for key in AGES]
        self.state = draw_state(
            filtered,
            filters=[
                (name, TEXTS[f"filter_{name}"], [("", TEXTS[_ALL[name]]), *each])
                for name, each in choices.items()
                if each
            ],
            found=self.snapshot().head.status_text if any(filtered.values()) else "",
        )

    def _notices(self) -> list[NoticeItem]:
        shown = sum(1 for drawn in self._drawn.values() if drawn.waits)
        found = []
        if self.stranded:
            found.append(_stranded_notice(self.stranded))
        if shown < self._waiting:
            text = TEXTS["inbox_more"].format(n=f"{self._waiting - shown:,}")
            label = TEXTS["inbox_show_more"].format(n=min(PAGE, self._waiting - shown))
            show = NoticeAction(name="show", label=label)
            found.append(NoticeItem(key=MORE, text=text, actions=[show]))
        return found


def _stranded_notice(stranded: Sequence[Stranded]) -> NoticeItem:
    """The notice that names the runs which no process is running, with ways to continue them."""
    runs = [one.run for one in stranded]
    named = []
    for run in runs[:NAMED]:
        short = _brief_id(run.id)
        named.append(reveal(run.id if short == run.id else f"{run.agent} ({short})"))
    runs_text = ", ".join(named) + (f" +{len(runs) - NAMED:,}" if len(runs) > NAMED else "")
    text = TEXTS["inbox_stranded"].format(runs=runs_text)
    here = sum(1 for one in stranded if one.here)
    if not here:
        text = f"{text}\n{TEXTS['inbox_open'].format(run=reveal(runs[0].id))}"
    actions = [NoticeAction(name="go_on", label=TEXTS["inbox_continue_here"].format(n=here))]
    return NoticeItem(key=STRANDED, tone="warn", text=text, actions=actions[: here > 0])


def _with_covers(drawn: dict[str, _Drawn]) -> dict[str, _Drawn]:
    """The drawn questions, with what an answer to all questions of a group covers."""
    groups: dict[str, list[str]] = {}
    for key, one in sorted(drawn.items(), key=lambda each: each[1].asked.at):
        if isinstance(one.item, FormItem) and one.item.group:
            groups.setdefault(one.item.group, []).append(key)
    for keys in groups.values():
        asked = [
            (item, drawn[key].question)
            for key in keys
            if isinstance(item := drawn[key].item, FormItem)
        ]
        for key, item in zip(keys, covered(asked), strict=True):
            if item != drawn[key].item:
                drawn[key] = replace(drawn[key], item=item)
    return drawn


def _key(asked: InboxQuestion) -> str:
    return f"{asked.run.id}/{asked.interrupt.id}"


def _with_typed(drawn: _Drawn, known: FormItem | RecordItem | None) -> _Drawn:
    """The question with the unsent input that arrived while the question was drawn."""
    if not isinstance(drawn.item, FormItem) or not isinstance(known, FormItem):
        return drawn
    update: dict[str, Any] = {
        "drafts": known.drafts,
        "instead": known.instead or drawn.item.instead,
    }
    if drawn.tool is not None:
        update |= {name: getattr(known, name) for name in ("preview", "preview_error")}
        update |= {"preview_note": known.preview_note, "actions": known.actions}
    if known == drawn.item.model_copy(update=update):
        drawn.item = known
    elif known.spec == drawn.item.spec:
        drawn.item = drawn.item.model_copy(update=update)
    return drawn


def _followed(drawn: _Drawn, asked: InboxQuestion, source: InboxEntry, *, busy: bool) -> _Drawn:
    """The drawn question, updated. It is drawn again only if the interrupt or the shown texts have changed."""
    if asked.interrupt == drawn.asked.interrupt:
        continuation = drawn.continuation if busy else source.continuation(asked)
        earlier = drawn.earlier if busy else _is_earlier(asked, source)
        if _where(continuation) == _where(drawn.continuation) and earlier == drawn.earlier:
            return replace(drawn, asked=asked)
    return _new_drawn(asked, source)


def _new_drawn(asked: InboxQuestion, source: InboxEntry) -> _Drawn:
    continuation = source.continuation(asked)
    tool = None if continuation.tools is None else source.tool_of(asked, continuation.tools)
    key, names = _key(asked), asked.interrupt.path[:-1]
    question = replace(_question(asked, continuation, tool), id=key)
    path = " ▸ ".join(map(reveal, names or (asked.run.agent,)))
    item = grouped(question.item(f"q:{key}", f"{path}.", "" if _is_own(asked) else path), question)
    update: dict[str, Any] = {"facts": [*item.facts, *_about(asked, continuation)]}
    earlier = _is_earlier(asked, source)
    if earlier:  # kept out of tables, so that it is not answered together with others
        note = " ".join(filter(None, (TEXTS["inbox_earlier"], item.note)))
        update |= {"group": "", "note": note}
    elsewhere = source.tool_of(asked) if continuation.place == "there" else None
    if elsewhere is not None and question.is_previewed(elsewhere):
        update["preview_note"] = TEXTS["inbox_preview"]
    return _Drawn(asked, continuation, question, item.model_copy(update=update), tool, earlier)


def _is_earlier(asked: InboxQuestion, source: InboxEntry) -> bool:
    """Whether the run's cell has started another run since, in this kernel or in a later kernel of the store."""
    run = asked.run
    begun_here = run.cell in kernel.cells_with_runs and run.started_by != this_process()
    return begun_here or source.is_earlier(asked)


def _question(
    asked: InboxQuestion, continuation: Continuation, tool: Tool[..., Any] | None
) -> Question:
    """The question with the same form as in the run's card. Without its tool, the form is from the stored schemas."""
    waiting = asked.interrupt
    if tool is not None:
        return Question.of(waiting, Types.of(tool))
    if waiting.expects == "edit" and waiting.input_schema is None:
        waiting = replace(waiting, expects="approval", editable=False)
    question = replace(Question.of(waiting), memorable=False)  # rules belong to the agent
    if continuation.place == "here":
        return question
    if question.expects == "edit" and _is_secret(question):
        waiting = replace(waiting, expects="approval", editable=False)
        question = replace(Question.of(waiting), memorable=False)
    return _without_secrets(question, asked)


def _is_secret(question: Question) -> bool:
    return question.form is not None and may_hold_secret(question.form.fields)


def _without_secrets(question: Question, asked: InboxQuestion) -> Question:
    """Remove secret fields: a secret that is typed in this process would not reach another process."""
    if question.instead is not None and may_hold_secret(question.instead.fields):
        actions = tuple(action for action in question.actions if action.name != "answer")
        question = replace(question, instead=None, actions=actions)
    if not _is_secret(question):
        return question
    why = TEXTS["inbox_secret"].format(run=reveal(asked.run.id))
    note = " ".join(filter(None, (question.note, why)))
    actions = tuple(action for action in question.actions if action.name != "submit")
    return replace(question, form=None, named="", actions=actions, note=note)


def _is_own(asked: InboxQuestion) -> bool:
    """Whether a flow itself asks: tool and run then have the same name, which is shown once."""
    return asked.interrupt.path[:-1] == () and asked.interrupt.tool_name == asked.run.agent


def _brief_id(run_id: str) -> str:
    """The first 8 characters of a generated id; the whole id if a person chose it."""
    return run_id[:8] if re.fullmatch("[0-9a-f]{32}", run_id) else run_id


def _about(asked: InboxQuestion, continuation: Continuation) -> list[Fact]:
    """The facts about a question: its run, its time, and the place where the run continues."""
    prompt = facts.bounded(" ".join(asked.run.prompt.split()), facts.MAX_BRIEF)
    run_facts = [
        Fact(label=TEXTS["inbox_run"], value=reveal(prompt or _brief_id(asked.run.id)), code=False),
        Fact(label=TEXTS["inbox_asked"], value=_moment(asked.at), code=False),
    ]
    if asked.is_for_person:
        run_facts.append(
            Fact(label=TEXTS["inbox_continues"], value=_where(continuation), code=False)
        )
    return run_facts


def _where(continuation: Continuation) -> str:
    """The place where the run continues after an answer, in words."""
    process = describe_process(continuation.process) if continuation.process else ""
    key = "inbox_there_or_here" if continuation.or_here else f"inbox_{continuation.place}"
    return TEXTS[key].format(process=reveal(process))


def _moment(at: float) -> str:
    """A Unix time in the kernel's time zone; without the date if it is today."""
    then, now = (dt.datetime.fromtimestamp(each).astimezone() for each in (at, time.time()))
    return then.strftime("%H:%M" if then.date() == now.date() else "%Y-%m-%d %H:%M")


def _record(key: str, drawn: _Drawn, event: Resolved | None) -> RecordItem:
    """The record of a settled question. Its title names the agent, the tool and the input, as runs are mixed."""
    question = drawn.question
    subject = facts.brief(question.public_input or {}) or question.title
    agent = () if _is_own(drawn.asked) else (reveal(drawn.asked.run.agent), "▸")
    title = " ".join(filter(None, (*agent, question.tool, subject)))
    if event is None:
        return RecordItem(key=f"a:{key}", title=title, decision=TEXTS["unanswered"], tone="plain")
    record = drawn.question.record(f"a:{key}", event, drawn.asked.at)
    decision_parts = [f"{record.decision}, {_moment(event.at)}"]
    details = list(record.details)
    if drawn.continuation.place == "nowhere":
        decision_parts.append(TEXTS["inbox_is_kept"])
        code = f'await nb.open_run("{drawn.asked.run.id}", agent=agent, store=store)'
        details.append(Fact(label=TEXTS["inbox_to_continue"], value=reveal(code)))
    return record.model_copy(
        update={"title": title, "decision": " · ".join(decision_parts), "details": details}
    )
