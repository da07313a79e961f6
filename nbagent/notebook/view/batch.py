"""The view of a batch: its progress, the rows of a window, and the questions that a rule chooses."""

from __future__ import annotations

import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from nbagent.batch.batch import Batch, waiting_of, work_of
from nbagent.batch.listing import RowState, completion
from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.messages import dumps
from nbagent.core.base.model import Usage
from nbagent.core.run.scripted_answers import is_approval
from nbagent.core.stored.inbox import InboxQuestion, below
from nbagent.notebook.render import facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import BATCH_TEXTS, TEXTS
from nbagent.notebook.wire import CardHead, Item, NoticeItem

from .covers import Summary
from .metadata import QuestionMetadata
from .table import Query, TableView, choose, draw_state

COLUMNS = ("number", "key", "status", "result", "cost")
ORDER = ("interrupted", "stuck", "failed", "running", "cancelled", "completed", "left")
"""Statuses in sorting order: rows that need a person come first."""
SHOWN = ("completed", "running", "interrupted", "stuck", "failed", "cancelled", "left")
"""Statuses in display order."""
KEPT = 500
"""Maximum number of row outputs in memory; the outputs that were drawn first are dropped first."""
RATE_SECONDS = 30.0
"""Seconds over which the rate of ended rows is measured."""
MAX_ERROR = 2_000
"""Characters of the reason why a batch ended."""
MAX_CHOICES = 100
"""Maximum number of choices for answering many questions at once."""
MAX_ODD = 20
"""Odd values that a page receives at once to be opened."""
OPERATORS = ("is", "contains", "below", "above")


@dataclass(frozen=True, slots=True)
class QuestionRule:
    """A rule that chooses the questions to answer at once."""

    tool: str = ""
    field: str = ""
    operator: str = "is"
    value: str = ""
    version: str = ""
    """An id that the page makes for each choice of a rule; empty if the kernel made the rule."""

    def fits(self, one: InboxQuestion) -> bool:
        """Whether a question matches."""
        asked = one.interrupt
        if self.tool and asked.tool_name != self.tool:
            return False
        if not self.field or not self.value:
            return True
        if self.field not in asked.input:
            return False
        given = asked.input[self.field]
        text = given if isinstance(given, str) else dumps(given)
        if self.operator == "is":
            return text == self.value
        if self.operator == "contains":
            return self.value.casefold() in text.casefold()
        limit = self.limit
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if limit is None or not is_number:
            return False
        return below(limit)(given) if self.operator == "below" else given > limit

    @property
    def limit(self) -> float | None:
        """The value as a number; None if it is not a number."""
        try:
            limit = float(self.value)
        except ValueError:
            return None
        return limit if limit == limit else None  # noqa: PLR0124 - NaN alone is not itself

    def in_words(self) -> str:
        """The rule in words, for the record of an answer."""
        parts = [f"tool={self.tool!r}"] if self.tool else []
        if self.field and self.value:
            word = {"is": "=", "contains": " contains ", "below": " below ", "above": " above "}
            parts.append(f"{self.field}{word[self.operator]}{self.value!r}")
        return ", ".join(parts) or "all"


_LABELS = [key for key in TEXTS if key.startswith(("covers_", "odd_", "needs_look"))]
"""The keys of the texts that the page shares with cards."""


def count_texts(counts: Mapping[str, int]) -> list[list[Any]]:
    """The status, the text and the number of each count, in display order, without zeros; ``completed`` always."""
    what = {name: BATCH_TEXTS[f"batch_{name}"] for name in SHOWN}
    return [
        [name, BATCH_TEXTS["batch_count"].format(n=f"{n:,}", what=what[name]), n]
        for name in SHOWN
        if (n := counts.get(name, 0)) or name == "completed"
    ]


def used_text(usage: Usage) -> str:
    """The cost and the tokens of a batch; empty if there are none."""
    used = [f"${usage.known_cost:,.4f}"] if usage.known_cost else []
    if usage.total_tokens:
        used.append(BATCH_TEXTS["batch_tokens"].format(n=_short(usage.total_tokens)))
    return " · ".join(used)


class RowPreview:
    """The questions that a rule matched, as pages have shown them."""

    def __init__(self, rule: QuestionRule, matching: list[InboxQuestion], opened: set[str]) -> None:
        self.rule = rule
        self.shown = [(one.key, one.interrupt) for one in matching]
        self.summary = Summary({one.key: _values(one) for one in matching})
        self.opened = opened & {one.id for one in self.summary.odd}
        """The odd values that pages have received in full."""
        self._matching = matching

    def covered(self, opened: Collection[str]) -> list[InboxQuestion]:
        """The questions of which a page with these opened values has had every value."""
        keys = set(self.summary.covered(self.opened.intersection(opened)))
        return [one for one in self._matching if one.key in keys]


class BatchView(TableView):
    """The view of a batch. ``look`` reads the store: call it in a thread, once at a time."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(("text", "status"), COLUMNS)
        self.batch = batch
        self.waiting = waiting_of(batch)
        self.rule = QuestionRule()
        self.outcome_text = ""
        """The outcome of the last answer to many questions, in words."""
        self.asked: dict[str, list[InboxQuestion]] = {}
        """The open questions, by run id."""
        self.previews: OrderedDict[int, RowPreview] = OrderedDict()
        """What pages have shown of the matching questions, by a number that pages send back."""
        self._outputs: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._ended: deque[tuple[float, int]] = deque(maxlen=120)

    # --- drawing

    @property
    def labels(self) -> dict[str, str]:
        """The texts that the page shows by itself."""
        common = {name: BATCH_TEXTS[f"batch_{name}"] for name in ("gone", "open", "close", "rows")}
        return {**BATCH_TEXTS, **{key: TEXTS[key] for key in _LABELS}, **common}

    def want(self, filters: Mapping[str, str]) -> None:
        """Set the filters; a status that no row can have counts as none."""
        status = filters.get("status", "")
        super().want({**filters, "status": status if status in SHOWN else ""})

    def _status(self, row: RowState) -> str:
        if row.key in work_of(self.batch).stuck:
            return "stuck"
        return "running" if row.status == "queued" else row.status

    def look(self) -> None:
        """Draw the batch as it is now. Do not call this on an event loop, as it may read the store."""
        work, batch, query = work_of(self.batch), self.batch, self.query
        counts, status = dict(batch.counts), batch.status
        self._look_at_questions(counts["interrupted"])
        chosen = self._chosen(query)
        is_filtered = any(query.filters.values())
        columns = [
            (name, BATCH_TEXTS[f"batch_{name}"])
            for name in COLUMNS
            if name != "cost" or batch.usage.known_cost
        ]
        none = BATCH_TEXTS["batch_none" if is_filtered else "batch_empty"]
        self.window = self._draw_window(query, chosen, columns, self._cells, none)
        found = BATCH_TEXTS["batch_found"].format(n=f"{len(chosen):,}", all=f"{len(work.rows):,}")
        self.state = draw_state(
            query.filters,
            filters=[("text", BATCH_TEXTS["batch_find"], None)],
            found=found if is_filtered else "",
            buttons=self._buttons(status, counts["failed"] + counts["cancelled"]),
            progress={
                "label": BATCH_TEXTS["batch_status"],
                "counts": count_texts(counts),
                "total": work.total if work.total is not None else len(work.rows),
                "text": " · ".join(
                    filter(None, (self._rate_text(counts, status), used_text(batch.usage)))
                ),
            },
            asks=self._asks(),
        )

    def _buttons(self, status: str, ended: int) -> list[tuple[str, str, str, str]]:
        """The buttons for all rows, as in ``draw_state``."""
        texts, buttons = BATCH_TEXTS, []
        if ended:
            buttons.append(("retry", "retry", texts["batch_retry"].format(n=f"{ended:,}"), ""))
        if status == "paused":
            buttons.append(("pause", "resume", texts["batch_resume"], ""))
        elif status in ("starting", "running"):
            buttons.append(("pause", "pause", texts["batch_pause"], ""))
        if status in ("starting", "running", "waiting", "paused"):
            buttons.append(("stop", "stop", texts["batch_stop"], texts["batch_stop_sure"]))
        return buttons

    def _look_at_questions(self, waiting: int) -> None:
        if waiting or self.asked:
            if self.waiting.has_changed:
                self.waiting.look()
            asked: dict[str, list[InboxQuestion]] = {}
            for one in self.waiting.all:
                asked.setdefault(one.run.id, []).append(one)
            self.asked = asked

    def _chosen(self, query: Query) -> list[RowState]:
        status = query.filters["status"]
        rows = sorted(work_of(self.batch).rows.values(), key=lambda row: row.number)
        if status:
            rows = [row for row in rows if self._status(row) == status]
        order: Mapping[str, Callable[[RowState], Any]] = {
            "number": lambda row: row.number,
            "key": lambda row: (len(row.key) if row.key.isdigit() else 0, row.key.casefold()),
            "status": lambda row: (ORDER.index(self._status(row)), row.number),
            "result": lambda row: (row.error, row.asks, row.number),
            "cost": lambda row: row.usage.known_cost,
        }
        return choose(rows, query, self._text_to_find, order)

    def _text_to_find(self, row: RowState) -> str:
        questions = " ".join(_question(one) for one in self.asked.get(row.run_id, ()))
        return f"{row.key} {row.error} {' '.join(row.asks)} {questions}"

    def _cells(self, row: RowState) -> tuple[str, str, str, list[str]]:
        cost, status = row.usage.cost, self._status(row)
        name = facts.shown(row.key, facts.MAX_BRIEF)
        text = facts.shown(self._row_text(row), facts.MAX_BRIEF)
        cells = [f"{row.number:,}", name, BATCH_TEXTS[f"batch_{status}"], text]
        return row.key, name, status, [*cells, f"${cost:,.4f}" if cost else ""]

    def _row_text(self, row: RowState) -> str:
        """The text of a row: its result, its question, or its error."""
        stuck = work_of(self.batch).stuck.get(row.key)
        if stuck or row.error:
            return stuck or row.error
        if row.status == "interrupted":
            asked = self.asked.get(row.run_id)
            return "; ".join(map(_question, asked)) if asked else ", ".join(row.asks)
        return self._output(row) if row.status == "completed" else ""

    def _output(self, row: RowState) -> str:
        at = (row.run_id, row.length)
        if at not in self._outputs:
            try:
                done = completion(self.batch.store, row.run_id, row.length)
            except (StoreError, UsageError) as error:
                return f"({error})"
            text = ""
            if done is not None:
                text = done.text if done.output is None else _plain(done.output)
            self._outputs[at] = " ".join(text[: 2 * facts.MAX_BRIEF].split())
            while len(self._outputs) > KEPT:
                self._outputs.popitem(last=False)
        return self._outputs[at]

    # --- progress

    def _rate_text(self, counts: Mapping[str, int], status: str) -> str:
        """The rate, and the remaining time at that rate."""
        ended = counts["completed"] + counts["failed"] + counts["cancelled"]
        now = time.monotonic()
        while self._ended and now - self._ended[0][0] > RATE_SECONDS:
            self._ended.popleft()
        self._ended.append((now, ended))
        if status not in ("running", "starting"):
            return ""
        before, n = self._ended[0]
        rate = (ended - n) / (now - before) if now - before > 0.5 else 0.0
        if not rate:
            return ""
        rate_text = BATCH_TEXTS["batch_rate"].format(
            n=f"{rate:,.1f}" if rate < 10 else f"{rate:,.0f}"
        )
        remaining = counts.get("left", 0) + counts["running"]
        return rate_text if "left" not in counts else f"{rate_text} · {_span(remaining / rate)}"

    # --- many questions at once

    def _asks(self) -> dict[str, Any] | None:
        waiting = [one for one in self.waiting.all if one.is_for_person] if self.asked else []
        if not waiting:
            return None
        tools = Counter(one.interrupt.tool_name for one in waiting)
        rule = self.rule  # a page may choose another one meanwhile
        if rule.tool not in tools:
            rule = self.rule = QuestionRule(tool=tools.most_common(1)[0][0])
        of_tool = [one for one in waiting if one.interrupt.tool_name == rule.tool]
        fields: dict[str, None] = {}
        for one in of_tool:
            fields.update(dict.fromkeys(one.interrupt.input))
        matching = [one for one in of_tool if rule.fits(one)]
        last = next(reversed(self.previews), 0)
        before = self.previews.get(last)
        shown = [(one.key, one.interrupt) for one in matching]
        if before is None or before.rule != rule or before.shown != shown:
            opened = before.opened if before is not None and before.rule == rule else set()
            self.previews[last + 1] = RowPreview(rule, matching, set(opened))
            while len(self.previews) > 3:
                self.previews.popitem(last=False)
            self._cover()
        found = {"n": f"{len(matching):,}", "all": f"{len(waiting):,}"}
        is_no_number = rule.operator in ("below", "above") and rule.value and rule.limit is None
        said = BATCH_TEXTS["batch_no_number" if is_no_number else "batch_matches"].format(**found)
        waits = BATCH_TEXTS["batch_waits_one" if len(waiting) == 1 else "batch_waits"]
        return {
            "tools": [
                [name, reveal(name or BATCH_TEXTS["batch_limit"]), n]
                for name, n in tools.most_common(50)
            ],
            "fields": [[name, reveal(name)] for name in [*fields][:50]],
            "rule": list(astuple(rule)),
            "fit": len(matching),
            "preview": next(reversed(self.previews)),
            "said": said,
            "approvable": all(is_approval(one.interrupt) for one in matching),
            "choices": [
                [str(n), reveal(label)] for n, (_, label) in enumerate(choices_of(matching))
            ],
            "writable": takes_text(matching),
            "told": self.outcome_text,
            "waits": waits.format(n=f"{len(waiting):,}"),
        }

    def open_value(self, number: int, id_: str) -> None:
        """Show an odd value in full, so that an answer covers the questions that have it."""
        preview = self.previews.get(number)
        if preview is not None and any(one.id == id_ for one in preview.summary.odd):
            preview.opened.add(id_)
            self._cover()

    def _cover(self) -> None:
        """What the newest preview covers, and its odd values: the opened ones in full, and the next ones to open."""
        number = next(reversed(self.previews))
        preview = self.previews[number]
        odd = preview.summary.odd
        left = [one.id for one in odd if one.id not in preview.opened]
        sent = preview.opened.union(left[:MAX_ODD])
        covers = preview.summary.covers(preview.opened)
        self.covers = {
            "preview": number,
            **covers.model_dump(mode="json"),
            "look": [
                [
                    one.id,
                    str(one),
                    facts.brief_of(one.value),
                    len(one.keys),
                    one.fact.model_dump(mode="json") if one.id in preview.opened else None,
                ]
                for one in odd
                if one.id in sent
            ],
            "more": max(0, len(left) - MAX_ODD),
        }

    # --- the frame

    def _items(self) -> list[Item]:
        error = self.batch.error
        if error is None:
            return super()._items()
        message = reveal((str(error) or type(error).__name__)[:MAX_ERROR])
        return [NoticeItem(key="error", tone="bad", text=message), *super()._items()]

    def _head(self) -> CardHead:
        batch, counts = self.batch, self.batch.counts
        total = work_of(batch).total
        done = f"{counts['completed']:,}"
        status_text = (
            BATCH_TEXTS["batch_done"].format(n=done)
            if total is None
            else BATCH_TEXTS["batch_of"].format(n=done, all=f"{total:,}")
        )
        if batch.status in ("paused", "cancelled", "starting"):
            status_text = f"{BATCH_TEXTS[f'batch_is_{batch.status}']} · {status_text}"
        status = {"waiting": "interrupted", "paused": "interrupted", "starting": "running"}.get(
            batch.status, batch.status
        )
        if status == "completed" and counts["failed"]:
            status = "failed"
        return CardHead(
            run=batch.id,
            agent=reveal(batch.id),
            prompt=reveal(BATCH_TEXTS["batch_with"].format(agent=batch.agent)),
            status=status,
            status_text=status_text,
            questions=counts["interrupted"],
        )


def choices_of(questions: Sequence[InboxQuestion]) -> list[tuple[Any, str]]:
    """The choices, as value and label, if all these questions ask for the same choice; else empty."""
    if not questions:
        return []
    first, *others = ((one.interrupt.expects, one.interrupt.metadata) for one in questions)
    expects, stated = first
    if expects != "choice" or not isinstance(stated, Mapping) or any(o != first for o in others):
        return []
    asked = QuestionMetadata(questions[0].interrupt)
    choices = asked.choices or []
    if asked.multiple or len(choices) > MAX_CHOICES:
        return []
    return [(value, label or facts.shown(value)) for value, label, _ in choices]


def takes_text(questions: Sequence[InboxQuestion]) -> bool:
    """Whether all these questions ask for a string."""
    schemas = [one.interrupt.reply_schema for one in questions if one.interrupt.expects == "value"]
    texts = [isinstance(each, Mapping) and each.get("type") == "string" for each in schemas]
    return bool(questions) and len(texts) == len(questions) and all(texts)


def _question(one: InboxQuestion) -> str:
    asked = one.interrupt
    given = ", ".join(f"{name}={_plain(value)}" for name, value in asked.input.items())
    name = asked.tool_name or BATCH_TEXTS["batch_limit"]
    message = asked.metadata.get("message") if isinstance(asked.metadata, Mapping) else None
    description = " · ".join(filter(None, (message if isinstance(message, str) else "", given)))
    return f"{name}: {description}" if description else name


def _values(one: InboxQuestion) -> dict[str, Any]:
    """The values that a person decides on: those of the input, and the others that the question shows."""
    asked = one.interrupt
    stated = asked.metadata
    named = stated if isinstance(stated, Mapping) else {} if stated is None else {"message": stated}
    note = {"note": asked.note} if asked.note else {}
    return {**{str(name): value for name, value in named.items()}, **note, **asked.input}


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    return json.dumps(value, ensure_ascii=False)


def _span(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return BATCH_TEXTS["batch_left_in"].format(n=f"{seconds / size:.0f} {unit}")
    return BATCH_TEXTS["batch_left_in"].format(n=f"{max(1, round(seconds))} s")


def _short(n: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return str(n)
