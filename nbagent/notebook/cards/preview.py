"""Previews of an approval's effect, made by the tool's own ``preview=`` and shown above the buttons."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from nbagent.core.base.controls import escaped
from nbagent.core.call.threads import run_in_thread
from nbagent.core.tools.tool import Tool
from nbagent.forms.form import Submission
from nbagent.notebook.capture.bundles import present
from nbagent.notebook.render import facts, rich
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import Rich

log = logging.getLogger("nbagent")

PAUSE = 0.3
"""Seconds without a further edit before a new preview is made."""
MAX_ERROR = 500


Show: TypeAlias = Callable[[list[Rich], str | None, str | None], None]
"""A function that shows the pieces of a preview, an error, or a note about missing input."""


class Preview:
    """The preview of one open approval. All methods are called on one loop.

    The tool's ``preview=`` runs once at a time. If edits arrive meanwhile, it runs again for the newest edit.
    """

    def __init__(self, tool: Tool[..., Any], question: Question, show: Show) -> None:
        self._tool = tool
        self._question = question
        self._show = show
        self._wanted: dict[str, Any] | None = question.input
        self._shown: dict[str, Any] | None = None
        """The input whose preview is shown, or is being made."""
        self._task = asyncio.get_running_loop().create_task(self._follow(0.0))

    def typed(self, drafts: Any) -> None:
        """Show the effect of approving the changed input."""
        read = self._question.input if drafts is None else self._document_of(drafts)
        if read is None:
            self._wanted = self._shown = None
            self._show([], None, TEXTS["preview_waits"])
        elif not facts.same_json(read, self._shown):
            self._wanted = read
            if self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._follow(PAUSE))

    def end(self) -> None:
        """End, as the question is settled."""
        self._task.cancel()

    def _document_of(self, drafts: Any) -> dict[str, Any] | None:
        submission = self._question.submitted(drafts)
        document = submission.document if isinstance(submission, Submission) else None
        return document if isinstance(document, dict) else None

    async def _follow(self, pause: float) -> None:
        await asyncio.sleep(pause)
        while self._wanted is not None:
            input_ = self._shown = self._wanted
            self._wanted = None
            pieces, error = await self._run_preview(input_)
            if self._shown is input_ and self._wanted is None:
                self._show(pieces, error, None)
            else:
                await asyncio.sleep(PAUSE)

    async def _run_preview(self, input_: dict[str, Any]) -> tuple[list[Rich], str | None]:
        preview = self._tool.options.preview
        assert preview is not None  # else there is no Preview
        try:
            typed = self._tool.parse(self._tool.masked(input_))  # only the body receives secrets
            if inspect.iscoroutinefunction(preview):
                value = await preview(typed)
            else:
                value = await run_in_thread(partial(preview, typed))
            return await run_in_thread(partial(_drawn, value)), None
        except Exception as error:  # the person's code may raise anything; approving still works
            traceback_text = escaped(traceback.format_exc())
            log.info("the preview of %s failed\n%s", self._tool.name, traceback_text)
            text = f"{type(error).__name__}: {error}"[:MAX_ERROR]
            return [], TEXTS["preview_failed"].format(error=reveal(text))


def _drawn(value: Any) -> list[Rich]:
    """A value as a cell shows it: as rich output if possible, else as text."""
    if value is None:
        return []
    bundle = present(value)
    if bundle is None:
        return [Rich(kind="text", data=facts.shown(value, facts.MAX_TEXT))]
    return rich.render(bundle)
