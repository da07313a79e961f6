"""The view of a thread: the views of its runs, one below the other, as one view.

In a chat, an item's key starts with the number of the item's run. Keys therefore stay when other runs are added or
removed. A single run is a thread too, and looks like the run alone. A second run makes it a chat; drawn items stay.
"""

from __future__ import annotations

import itertools
from typing import Any

from nbagent.core.base.file_parts import Content
from nbagent.notebook.render.amounts import ENDED, counted
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    CardHead,
    FormItem,
    Item,
    NoticeItem,
    Op,
    Put,
    Remove,
    SetHead,
    View,
)

from .questions import Question
from .view import SingleRunView

_SUMMED = (
    "turns", "tokens", "known_cost", "cached", "reasoning", "decisions", "decisions_by_you",
)  # fmt: skip
"""The numbers in a chat's head that are sums over the runs."""


class ThreadPart:
    """One run of a thread."""

    def __init__(self, prefix: str, view: SingleRunView) -> None:
        self.prefix = prefix
        self.view = view
        self.keys: set[str] = set()
        """The keys of the items that pages have, without the prefix."""
        self.head: CardHead = view.head

    def items(self) -> list[Item]:
        """All items of the run, as pages have them."""
        return [self.placed(item) for item in self.view.snapshot().items]

    def placed(self, item: Item) -> Item:
        """The item under its key in the thread."""
        update: dict[str, Any] = {"key": self.prefix + item.key}
        if isinstance(item, FormItem) and item.call:
            update["call"] = self.prefix + item.call
        if isinstance(item, FormItem) and item.group:
            update["group"] = self.prefix + item.group
        return item.model_copy(update=update)

    def ops(self, now: float, before: int) -> list[Op]:
        """The operations since the last call; ``before`` is the number of items above this run."""
        ops: list[Op] = []
        for op in self.view.flush(now) or ():
            match op:
                case SetHead(head=head):
                    self.head = head
                case Put(item=item, index=index):
                    self.keys.add(item.key)
                    ops.append(Put(item=self.placed(item), index=before + index))
                case Remove(key=key):
                    self.keys.discard(key)
                    ops.append(Remove(key=self.prefix + key))
                case _:
                    ops.append(op.model_copy(update={"key": self.prefix + op.key}))
        return ops


class ThreadView:
    """The view of a thread of runs. Not thread-safe: callers hold a lock.

    Args:
        agent: the agent's name.
        chat: whether the view is a chat from the start; else it is a chat once there are two runs.
    """

    def __init__(self, agent: str, *, chat: bool = True) -> None:
        self._agent = agent
        self.chat = chat
        self.can_ask = False
        """Whether a page offers a follow-up once a single run has ended."""
        self._parts: list[ThreadPart] = []
        self._numbers = itertools.count(1)
        self._removals: list[Op] = []
        self._sent: CardHead | None = None

    def add_run(self, view: SingleRunView) -> None:
        """Add a run at the end."""
        if self._parts and not self.chat:
            self.chat = True
            self._parts[0].view.join_thread()
        number = next(self._numbers)
        self._parts.append(ThreadPart(f"t{number}:" if self.chat else "", view))

    def keep_first(self, count: int) -> None:
        """Remove all runs but the first ``count``."""
        for part in self._parts[count:]:
            self._removals += [Remove(key=part.prefix + key) for key in sorted(part.keys)]
        del self._parts[count:]

    def place(self, key: str) -> int | None:
        """The index of the run that has the item with this key; None if there is none."""
        places = [n for n, part in enumerate(self._parts) if key.startswith(part.prefix)]
        return places[-1] if places else None  # the first prefix may be empty, which fits every key

    def queued(self, key: str) -> Content | None:
        """The message with this key, if the model does not have it yet."""
        place = self.place(key)
        part = None if place is None else self._parts[place]
        return None if part is None else part.view.queued(key.removeprefix(part.prefix))

    def asker(self, interrupt: str) -> int | None:
        """The index of the run that asks this question; None if no run asks it."""
        asks = (n for n, p in enumerate(self._parts) if p.view.question(interrupt) is not None)
        return next(asks, None)

    # --- the methods that the view of one run has too

    def flush(self, now: float) -> list[Op] | None:
        """The operations since the last flush, in order, or None if nothing changed."""
        ops, self._removals = self._removals, []
        before = 0
        for part in self._parts:
            if part.view.dirty:
                ops += part.ops(now, before)
            before += len(part.keys)
        head = self._head()
        if head != self._sent:
            self._sent = head
            ops.append(SetHead(head=head))
        return ops or None

    @property
    def dirty(self) -> bool:
        """Whether a flush, now or a little later, will have something to send."""
        return bool(self._removals) or any(part.view.dirty for part in self._parts)

    def snapshot(self) -> View:
        """The whole view."""
        for part in self._parts:
            part.head = part.view.head
        return View(head=self._head(), items=[i for part in self._parts for i in part.items()])

    def question(self, interrupt: str) -> Question | None:
        """The open question of this interrupt, as it is shown."""
        place = self.asker(interrupt)
        return None if place is None else self._parts[place].view.question(interrupt)

    def update_form(
        self, interrupt: str, update: dict[str, Any], *, instead: bool = False, send: bool = True
    ) -> None:
        """Change parts of a question's item as in ``changed_form``; without ``send``, only for later pages."""
        place = self.asker(interrupt)
        if place is not None:
            view = self._parts[place].view
            view.update_form(interrupt, update, instead=instead, send=send)

    def source(self, key: str) -> str:
        """The text of the item with this key as the model wrote it; empty if it is no text of a model."""
        place = self.place(key)
        part = None if place is None else self._parts[place]
        return "" if part is None else part.view.source(key.removeprefix(part.prefix))

    def set_stopping(self) -> None:
        """Show that the newest run is being stopped."""
        for part in self._parts[-1:]:
            part.view.set_stopping()

    def set_signing_in(self, *, now: bool) -> None:
        """Show that the newest run waits for a person to sign in, or that this has ended."""
        for part in self._parts[-1:]:
            part.view.set_signing_in(now=now)

    def notice(self, key: str, item: NoticeItem | None) -> None:
        """Add a notice of the notebook layer at the end, replace the notice, or (None) remove it."""
        parts = [part for part in self._parts if part.view.has_notice(key)]
        for part in parts or self._parts[-1:]:
            part.view.notice(key, item)

    def offers(self, key: str, action: str) -> bool:
        """Whether the notice with this key is shown and has this button."""
        place = self.place(key)
        part = None if place is None else self._parts[place]
        return part is not None and part.view.offers(key.removeprefix(part.prefix), action)

    def _head(self) -> CardHead:
        """The newest run's head, with the sums over all runs."""
        heads = [part.head for part in self._parts]
        if not heads:
            ready = TEXTS["status_ready"]
            return CardHead(
                run="", agent=self._agent, status="completed", status_text=ready, chat=True
            )
        last = heads[-1]
        if not self.chat:
            asks = self.can_ask and last.status in ENDED
            return last.model_copy(update={"asks": asks})
        costs = [head.cost for head in heads]
        known = [cost for cost in costs if cost is not None]
        before = sum(head.turns for head in heads[:-1])
        total = last.model_copy(
            update={
                "prompt": "",
                "chat": True,
                "max_turns": last.max_turns and before + last.max_turns,
                "cost": sum(known) if len(known) == len(costs) else None,
                **{name: sum(getattr(head, name) for head in heads) for name in _SUMMED},
            }
        )
        return counted(total)
