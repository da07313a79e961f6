"""One request until it is answered: its place in the line, its waits and tries, its notes and its price."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nbagent.core.base.errors import ModelError, NbagentError
from nbagent.core.base.messages import calls_of
from nbagent.core.base.model import Discarded, Finished, ModelDelta, Notice, Request, Waiting
from nbagent.models.limits import RateLimit, Ticket
from nbagent.models.prices import price_of

from .api import Api
from .bounds import BrokenStream
from .credentials import Credentials, StreamCut
from .errors import explained, refusal_of, refused_for_content
from .files import BLIND_HINT, blind_note, has_images
from .providers import Provider
from .retries import Pause, backoff, pause_after
from .send import read, send

LEFT_OUT = (
    "{provider} answers from here: what only {other:.100} reads of its earlier answers, such as their "
    "reasoning, is left out."
)
DEFAULT_RETRIES = 2
"""How often a request or a broken stream is repeated where the client does not say."""
WORTH_TELLING = 0.5
"""Seconds of waiting from which a person is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every exchange of one model."""

    name: str
    """What errors and notes call it."""
    model: str
    """What its server calls it."""
    api: Api
    provider: Provider | None
    """Whose key is sent; None where the client is somebody's own."""
    limits: RateLimit
    max_wait: float
    """Seconds that a server may tell a request to wait."""
    sees: bool
    """Whether it takes pictures."""
    has_known_prices: bool
    """Whether the prices that are known are those of its requests."""


class Exchange:
    """One request to the server of one client."""

    def __init__(
        self, terms: Terms, client: Any, request: Request, known: Credentials | None = None
    ) -> None:
        self._terms = terms
        self._client = client
        self._request = request
        self._host = host_of(client)
        self._owner = terms.api.owner(self._host)
        """Whose data in the history go along, and whose come back."""
        self._other = _answered_last(request, self._owner)
        self._retries: int = getattr(client, "max_retries", DEFAULT_RETRIES)
        self.credentials = Credentials.of(client, request.hosted, before=known)
        """What no text of it may tell; the object of an earlier exchange where that was the same."""

    async def batches(self) -> AsyncGenerator[list[ModelDelta], None]:
        """The answer, in batches of what arrived together; a stream that breaks is repeated.

        Raises:
            ModelConfigError: the client is misconfigured.
            ModelError: the server refused or failed, and retrying did not help.
        """
        ticket = self._terms.limits.ticket()
        try:
            for attempt in range(self._retries + 1):
                try:
                    async with aclosing(self._attempt(ticket)) as batches:
                        async for batch in batches:
                            yield batch
                except BrokenStream as error:
                    reason, again = self.credentials.cut(str(error)), error.again
                else:
                    return
                if attempt == self._retries or not again:
                    # without its cause, which has what was said
                    raise ModelError(f"the model {self._terms.name!r}: {reason}")
                ticket.leave()
                yield [Discarded(reason)]
                await asyncio.sleep(backoff(attempt))
        finally:
            ticket.leave()

    async def _attempt(self, ticket: Ticket) -> AsyncGenerator[list[ModelDelta], None]:
        """Ask once.

        Raises:
            BrokenStream: the answer broke off.
        """
        parser = self._terms.api.parser(self._owner)
        answer: Any = None
        async with aclosing(self._send(ticket)) as steps:
            async for answer in steps:
                if isinstance(answer, Waiting):
                    yield [answer]
        # a key may be a function, which was called by now
        self.credentials = Credentials.of(
            self._client, self._request.hosted, before=self.credentials
        )
        public = StreamCut(self.credentials)
        yield [Notice(note) for note in self._notes()]
        async with aclosing(read(answer, parser, _idle(self._client))) as batches:
            async for batch in batches:
                yield public.cut(batch)
        yield public.rest()
        end = parser.finished()
        if end is None:
            raise BrokenStream("the server's answer ended in the middle")
        ticket.used(end.usage.total_tokens)
        yield public.cut([self._priced(self._owned(end))])

    async def _send(self, ticket: Ticket) -> AsyncGenerator[Any, None]:
        """Each ``Waiting`` as it begins, and at last the answer.

        Raises:
            ModelError: the server refused, and so it did each time that it was asked again.
        """
        api, request = self._terms.api, self._request
        body, tries = api.body(request, self._owner), 0
        while True:
            ticket.guess(len(body))
            async with aclosing(_until_it_goes(ticket)) as waits:
                async for waiting in waits:
                    yield waiting
            refused, pause, body_before = None, None, body
            try:
                answer = await send(self._client, api, body)
            except Exception as error:
                refusal = refusal_of(error)
                if refusal is not None:
                    api.give_way(refusal)
                    body = api.body(request, self._owner)
                if body == body_before:  # whoever has found another way, it is tried
                    pause = pause_after(error, tries)
                    if self._is_over(pause, tries):
                        refused = self._refused(error, pause)
            else:
                yield answer
                return
            if refused is not None:  # here, with no traceback of what it was made of
                raise refused
            if pause is None:
                continue
            tries += 1
            if pause.for_all:
                ticket.refused(pause.seconds, pause.reason)
                continue
            ticket.leave()
            if pause.seconds >= WORTH_TELLING:
                yield Waiting(pause.seconds, pause.reason)
            await asyncio.sleep(pause.seconds)

    def _is_over(self, pause: Pause | None, tries: int) -> bool:
        return pause is None or tries >= self._retries or pause.seconds > self._terms.max_wait

    def _refused(self, error: Exception, pause: Pause | None) -> NbagentError:
        said = explained(
            error,
            model=self._terms.name,
            base_url=str(getattr(self._client, "base_url", "its base_url")),
            credentials=Credentials.of(self._client, self._request.hosted),
            provider=self._terms.provider,
            api=self._terms.api.name,
            wait=pause.seconds if pause is not None and pause.told else 0,
            max_wait=self._terms.max_wait,
        )
        if self._terms.sees and refused_for_content(error) and has_images(self._request.messages):
            return type(said)(f"{said}; {BLIND_HINT}")
        return said

    def _notes(self) -> list[str]:
        """What the person should know of this answer before it begins."""
        terms, other = self._terms, self._other
        blind = None if terms.sees else blind_note(terms.name, self._request.messages)
        notes = [] if blind is None else [blind]
        if other is not None and other.wants:
            notes.append(LEFT_OUT.format(other=other.name, provider=self._owner))
        return notes

    def _owned(self, end: Finished) -> Finished:
        """With whose answer it is where another provider answered last, so that its note stands once."""
        if end.provider is not None or self._other is None:
            return end
        return end._replace(provider={"name": self._owner})

    def _priced(self, end: Finished) -> Finished:
        """With what it cost, where the server did not say and prices tell; no price has hosted tools in it."""
        usage = end.usage
        is_known = self._terms.has_known_prices and not self._request.hosted
        if usage.cost is not None or not usage.total_tokens or not is_known:
            return end
        served = end.model if isinstance(end.model, str) else None
        price = price_of(self._host, served, self._terms.model)
        if price is None:
            return end
        return end._replace(usage=replace(usage, cost=price.of(usage)))


def host_of(client: Any) -> str:
    """The host that a client asks, by which data in a history are told apart."""
    url = getattr(client, "base_url", None)
    return str(getattr(url, "host", url))


class _Other(NamedTuple):
    """Another provider, by the last answer that says whose it is."""

    name: str
    wants: bool
    """Whether that answer has what only it reads."""


def _answered_last(request: Request, provider: str) -> _Other | None:
    """The other provider that answered last, or None where this one did, or nobody knows."""
    for message in reversed(request.messages):
        own = message.get("provider")
        if own is not None:
            wants = "data" in own or any("provider" in call for call in calls_of(message))
            return None if own["name"] == provider else _Other(own["name"], wants)
    return None


def _idle(client: Any) -> float | None:
    """The seconds for which a client waits for the server's next bytes, or None for as long as it takes."""
    said = getattr(client, "timeout", None)
    seconds = getattr(said, "read", said)
    return seconds if isinstance(seconds, int | float) else None


async def _until_it_goes(ticket: Ticket) -> AsyncGenerator[Waiting, None]:
    """Wait until a request may go, telling for how long whenever that is new."""
    told: tuple[float, str] | None = None
    while (wait := ticket.why_not()) is not None:
        end = time.monotonic() + wait.seconds if wait.seconds else 0.0
        is_new = told is None or wait.reason != told[1] or abs(end - told[0]) > WORTH_TELLING
        if is_new and not 0 < wait.seconds < WORTH_TELLING:
            told = end, wait.reason
            yield Waiting(wait.seconds, wait.reason)
        await ticket.wait(wait.seconds)
