"""The content of a card's header and footer: agent, prompt, status, counts, and the time strip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from nbagent.core.base.controls import without_controls
from nbagent.core.base.messages import is_prompt, text_of
from nbagent.core.base.user import is_somebody_else
from nbagent.core.state.state import RunState
from nbagent.notebook.render import amounts, facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import CardHead, PlanStep, Span

Lane = Literal["model", "tool", "inner", "wait"]
MAX_SPANS = 40
"""Maximum number of spans after joining, as the strip has limited width. Neighbors are joined at twice as many."""


class TimeStrip:
    """The time spans of model responses, tools and waits, by item key. Times are Unix seconds."""

    def __init__(self) -> None:
        self._done: list[tuple[Lane, float, float, str]] = []
        self._open: dict[str, tuple[Lane, float]] = {}
        self._built: list[Span] = []
        """The first spans of ``_done``, as the wire has them."""

    def start(self, key: str, lane: Lane, at: float) -> None:
        """Start a span."""
        self._open.setdefault(key, (lane, at))

    def stop(self, key: str, at: float) -> None:
        """End a span; does nothing if it was never started."""
        span = self._open.pop(key, None)
        if span is not None:
            lane, start = span
            self._done.append((lane, start, max(at, start), key if lane == "tool" else ""))
            if len(self._done) > 2 * MAX_SPANS:
                self._done = _joined(self._done)
                self._built = []

    def stop_all(self, at: float) -> None:
        """End all spans, as the run has ended."""
        for key in list(self._open):
            self.stop(key, at)

    def spans(self, origin: float) -> list[Span]:
        """The spans in seconds from ``origin``."""
        self._built += [
            Span(lane=lane, start=round(start - origin, 3), end=round(end - origin, 3), key=key)
            for lane, start, end, key in self._done[len(self._built) :]
        ]
        open_spans = [
            Span(lane=lane, start=round(at - origin, 3), key=key if lane == "tool" else "")
            for key, (lane, at) in self._open.items()
        ]
        return self._built + open_spans


def _joined(spans: list[tuple[Lane, float, float, str]]) -> list[tuple[Lane, float, float, str]]:
    """At most ``MAX_SPANS`` spans that look the same: neighbors that nearly touch are joined."""
    ordered = sorted(spans, key=lambda s: (s[0], s[1]))
    length = max(span[2] for span in spans) - min(span[1] for span in spans)
    gap = length / (2 * MAX_SPANS)
    while True:
        out = ordered[:1]
        for lane, start, end, key in ordered[1:]:
            last = out[-1]
            if last[0] == lane and start - last[2] <= gap:
                out[-1] = (lane, last[1], max(end, last[2]), "")
            else:
                out.append((lane, start, end, key))
        if len(out) <= MAX_SPANS:
            return out
        gap = gap * 2 or 0.001


BY_PEOPLE = ("form", "command line")
"""Ways in which a person answers; all others are code, a deadline or another system."""


class CardFrame:
    """The header and the footer."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.strip = TimeStrip()
        self.stopping = False
        """Whether Stop was pressed and the run has not ended yet."""
        self.signing_in = False
        """Whether the run waits for a person to sign in, in a form beside the card."""
        self.turns = 0
        self.prompt = ""
        self._model = ""
        self._started_at = 0.0

    def started(self, at: float, messages: list[Any], model: str) -> None:
        """Note the start of the run with this history and model."""
        message = last_user_message(messages)
        self._started_at, self._model = at, reveal(model)
        self.prompt = "" if message is None else without_controls(facts.bounded(text_of(message)))

    def head(
        self, state: RunState, agent: str, plan: tuple[tuple[str, ...], int], *, answering: bool
    ) -> CardHead:
        """The whole head: the engine's state of the run, and the view's own values.

        The current turn counts as soon as the model is ``answering``. No step of a plan is in progress after the end.
        """
        status = state.status
        steps, done = plan
        now = -1 if status in amounts.ENDED else done
        asked = sum(waits.expects != "external" for waits in state.open)
        waiting = "interrupted" if asked or self.signing_in else "outside"
        shown = "interrupted" if status == "running" and self.signing_in else status
        head = CardHead(
            run=self._run,
            agent=agent,
            prompt=self.prompt,
            status=status,
            status_text=TEXTS[f"status_{waiting if shown == 'interrupted' else shown}"],
            started_at=self._started_at,
            model=self._model,
            turns=self.turns + answering,
            max_turns=0
            if state.flow or state.queue_event is not None
            else self.turns + state.limit - state.turns,
            tokens=state.usage.total_tokens,
            cost=state.usage.cost,
            known_cost=state.usage.known_cost,
            cached=state.usage.cached,
            reasoning=state.usage.reasoning,
            questions=asked,
            decisions=sum(answer.by in BY_PEOPLE for answer in state.settled.values()),
            decisions_by_you=sum(
                answer.by == "form" and not is_somebody_else(answer.user)
                for answer in state.settled.values()
            ),
            signing_in=self.signing_in,
            stopping=self.stopping,
            spans=self.strip.spans(self._started_at),
            plan=[
                PlanStep(
                    text=facts.shown(" ".join(step.split()), facts.MAX_SHORT),
                    state="done" if at < done else "now" if at == now else "open",
                )
                for at, step in enumerate(steps)
            ],
        )
        return amounts.counted(head)


def last_user_message(messages: list[Any]) -> Mapping[str, Any] | None:
    """The last message of the person, if there is one."""
    prompts = (m for m in reversed(messages) if isinstance(m, Mapping) and is_prompt(m))
    return next(prompts, None)
