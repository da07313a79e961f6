"""The view of a store's runs: a table of the matching runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbagent.core.journal.default import is_missing
from nbagent.core.stored.listing import COLUMNS, STATUSES, Listing, StoredRun, row_of
from nbagent.notebook.render import facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import CardHead

from .table import Filter, TableView, choose, draw_state

_ORDER: Mapping[str, Callable[[StoredRun], Any]] = {
    "id": lambda run: run.id.casefold(),
    "agent": lambda run: run.agent.casefold(),
    "prompt": lambda run: " ".join(run.prompt.split()).casefold(),
    "status": lambda run: (STATUSES.index(run.status), run.status_text),
    "asks": lambda run: ", ".join(run.asks).casefold(),
    "updated": lambda run: None if run.updated is None else -run.updated,
    "deadline": lambda run: run.deadline,
    "cost": lambda run: run.usage.cost or None,
}


class RunsView(TableView):
    """The view of a list of runs."""

    def __init__(self, listing: Listing, scope_text: str) -> None:
        super().__init__(("text", "agent", "status"), COLUMNS)
        self._listing = listing
        self._scope_text = scope_text
        self._is_missing = False
        """Whether the store's file does not exist yet."""
        self._count = self._waiting = 0
        self.look()

    @property
    def labels(self) -> dict[str, str]:
        """The texts that the page shows by itself."""
        names = {name: TEXTS[f"runs_{name}"] for name in ("gone", "open", "close")}
        return {**names, "rows": TEXTS["runs"]}

    def look(self) -> None:
        """Draw the runs that were read last. Do not call this on an event loop, as there may be many runs."""
        listing, query = self._listing, self.query
        every, count, unread = listing.all, listing.count, listing.left
        agent, status = query.filters["agent"], query.filters["status"]
        matching = [run for run in every if agent in ("", run.agent) and status in ("", run.status)]
        chosen = choose(matching, query, _text_to_find, _ORDER)
        found = _counted(count)
        if len(chosen) != len(every):
            found = TEXTS["filter_count"].format(n=f"{len(chosen):,}", m=found)
        if unread:
            found = f"{found} · {TEXTS['runs_left'].format(n=f'{unread:,}')}"
        has = {
            "asks": any(run.asks for run in chosen),
            "deadline": any(run.deadline is not None for run in chosen),
            "cost": any(run.usage.cost for run in chosen),
        }
        columns = [
            (name, TEXTS[f"column_{name}"])
            for name in COLUMNS
            if has.get(name, True) or name == query.by
        ]
        names, now = {name for name, _ in columns}, time.time()

        def cells(run: StoredRun) -> tuple[str, str, str, list[str]]:
            texts = zip(COLUMNS, row_of(run, now), strict=True)
            shown = [facts.shown(text, facts.MAX_BRIEF) for name, text in texts if name in names]
            return run.id, facts.shown(run.id, facts.MAX_BRIEF), run.status, shown

        self._count, self._is_missing = count, is_missing(listing.catalog.store)
        self._waiting = sum(run.status == "interrupted" for run in every)
        none = TEXTS["runs_none" if count else "runs_empty"]
        self.window = self._draw_window(query, chosen, columns, cells, none)
        self.state = draw_state(
            query.filters, filters=self._filters(every), found=found if count else ""
        )

    def _filters(self, every: Sequence[StoredRun]) -> list[Filter]:
        """The filters; none if there are fewer than two runs."""
        if len(every) < 2:
            return []
        agents = sorted({run.agent for run in every if run.agent})
        present = {run.status for run in every}
        statuses = [(name, TEXTS[f"run_{name}"]) for name in STATUSES if name in present]
        return [
            ("text", TEXTS["filter_text"], None),
            (
                "agent",
                TEXTS["filter_agent"],
                [("", TEXTS["all_agents"]), *((name, reveal(name)) for name in agents)],
            ),
            ("status", TEXTS["filter_status"], [("", TEXTS["all_statuses"]), *statuses]),
        ]

    def _head(self) -> CardHead:
        status_text = _counted(self._count)
        if self._waiting:
            status_text += " · " + TEXTS["runs_waiting"].format(n=f"{self._waiting:,}")
        return CardHead(
            run="runs",
            agent=TEXTS["runs"],
            prompt=TEXTS["no_file"].format(place=self._scope_text)
            if self._is_missing
            else self._scope_text,
            status="interrupted" if self._waiting else "completed" if self._count else "cancelled",
            status_text=status_text,
            questions=self._waiting,
        )


def _text_to_find(run: StoredRun) -> str:
    return " ".join((run.id, run.agent, run.prompt, run.status_text, *run.asks))


def _counted(count: int) -> str:
    return TEXTS["runs_one" if count == 1 else "runs_count"].format(n=f"{count:,}")
