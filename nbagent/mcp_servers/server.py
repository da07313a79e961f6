"""``nb.mcp``: an MCP server, whose tools are tools of an agent."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from nbagent.core.base.amounts import counted
from nbagent.core.base.awaited import awaited
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import McpError, ToolError, UsageError, suggest
from nbagent.core.base.file_parts import MAX_FILE_BYTES, size_of_all
from nbagent.core.base.interrupts import ASKS_OUTSIDE
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.model import Model
from nbagent.core.base.pickling import Made, Travels, cannot_travel, made_anew
from nbagent.core.tools.call_output import current_call
from nbagent.core.tools.context import ToolContext
from nbagent.core.tools.policy import Approval, condition_misfit
from nbagent.core.tools.result_text import MAX_OUTPUT
from nbagent.core.tools.tool import Tool, ToolOptions
from nbagent.core.tools.toolbox import ToolSource

from .address import Command, McpSignIn, ServerSource, Url, address_of

try:
    import httpx2
    import mcp_types as types
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS

    from .connection import CHECK, Connection, ServerOptions
    from .exchange import McpExchange, Times
    from .results import result_value
    from .tokens import Tokens
    from .tools import tool_of, unsearched
except ModuleNotFoundError as error:
    raise ImportError(
        f"nb.mcp needs a package that is not installed ({error.name}): pip install 'jupyter-nbagent[mcp]'"
    ) from error

logger = logging.getLogger("nbagent")

TIMEOUT = 120.0
"""Seconds without a message from a server after which a call is abandoned."""
TOTAL = 3_600.0
"""Seconds after which a call is abandoned even if the server reports progress."""
CONNECT = 60.0
"""Seconds in which a server must start and list its tools."""
SHOWN = 8
"""Names of tools in a server's repr."""
MAX_LOGGED = 20
"""Warnings about one list of tools."""
MAX_ROUNDS = 10
"""The number of times that a server may ask for more input before it returns a result."""


class McpServer(Travels, ToolSource):
    """An MCP server from ``nb.mcp``, for an agent's ``tools``.

    The server is connected when a run first needs it, once for each event loop. A connection closes with its loop
    or by ``aclose()``. After a lost connection, the next call connects again.
    """

    def __init__(self, given: ServerSource, how: dict[str, Any]) -> None:
        self._remade = partial(made_anew, McpServer, given, dict(how))
        where = {key: how.pop(key) for key in ("server", "env", "headers", "cwd", "auth")}
        self._address, config_name = address_of(given, **where)
        self.label: str = how["name"] or config_name or self._address.label
        self.name = f"the MCP server {self.label}"
        self.notes: list[str] = []
        """The parts of the server that are not used, with reasons; then the parts of its schemas that are not checked."""
        self._left_out = 0
        self._prefix: str = how["prefix"]
        self._include, self._exclude = how["include"], how["exclude"]
        self._times = Times(how["timeout"], how["max_total_timeout"])
        self._tool_options = ToolOptions(
            approval=how["approval"], editable=how["editable"], max_output=how["max_output"]
        )
        self._model: Model | str | None = how["sampling"]
        samples = self._model is not None
        self._options = ServerOptions(
            self.label, how["connect_timeout"], how["roots"], samples, how["protocol"]
        )
        self._tools: Mapping[str, Tool[..., Any]] | None = None
        self._listed: list[dict[str, Any]] | None = None
        self._connections: list[Connection] = []
        """The connections that are not closed; of each event loop, only the last one may be in use."""
        self._lock = threading.Lock()
        is_older = how["protocol"] in HANDSHAKE_PROTOCOL_VERSIONS
        self._takes_turns = is_older and isinstance(self._address, Command)
        """Whether the server asks without saying which call asks; an older ``protocol=`` is for such servers."""

    def __repr__(self) -> str:
        if self._tools is None:
            named = f", prefix of its tools: {self._prefix}" if self._prefix else ""
            return escaped(f"<MCP server {self.label}: not connected yet{named}>")
        names = ", ".join([*self._tools][:SHOWN]) + (", …" if len(self._tools) > SHOWN else "")
        left_out = f"; {self._left_out} left out (see .notes)" if self._left_out else ""
        count = counted(len(self._tools), "tool")
        return escaped(f"<MCP server {self.label}: {count}{names and f' ({names})'}{left_out}>")

    def __reduce__(self) -> Made:
        address = self._address
        signs_itself = isinstance(address, Url) and not isinstance(address.auth, McpSignIn | None)
        if any(address.secrets) or signs_itself:
            cannot_travel(
                repr(self),
                "its headers, environment variables or sign-in may contain secrets. Create it in that process",
            )
        return self._remade()

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """The server's known tools by name; empty before the first connection."""
        return dict(self._tools or {})

    @awaited("server.connect")
    async def connect(self) -> McpServer:
        """Connect now, instead of when a run needs it, and return the server.

        Raises:
            McpError: the server cannot be reached; the message contains the server's last output.
            ToolError: ``include=`` names an unknown tool.
        """
        await self.ready()
        return self

    @awaited("server.sign_out")
    async def sign_out(self) -> None:
        """Delete the file with the server's tokens, and close its connections; the next run signs in again.

        The service is not notified. To revoke its grants, use the service's own pages.

        Raises:
            UsageError: the server does not use OAuth.
        """
        address = self._address
        if isinstance(address, Command) or not isinstance(address.auth, McpSignIn):
            raise UsageError(
                f"{self.name} has no sign-in. A sign-in needs a server with a URL, and auth= left out or nb.McpSignIn(…)"
            )
        Tokens(address.url, address.auth).path.unlink(missing_ok=True)
        await self.aclose()

    @awaited("server.aclose")
    async def aclose(self) -> None:
        """Close the server's connections and end its processes; the next run connects again."""
        with self._lock:
            connections, self._connections = self._connections, []
        for each in connections:
            with suppress(RuntimeError):  # its loop is closed
                each.loop.call_soon_threadsafe(each.leave)
            while each.loop.is_running() and not each.is_closed:  # noqa: ASYNC110 - its loop may stop at any time
                await asyncio.sleep(CHECK)

    async def __aenter__(self) -> McpServer:
        return await self.connect()

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def ready(self) -> Mapping[str, Tool[..., Any]]:
        """The server's current tools; if the server cannot list them, the last known tools."""
        try:
            return await self._now(reload=False)
        except McpError as error:
            if self._tools is None:
                raise
            logger.warning("%s", error)
        return self._tools

    async def _now(self, *, reload: bool, again: bool = True) -> Mapping[str, Tool[..., Any]]:
        """The server's tools, listed again if they may have changed, or if ``reload`` is True."""
        connection = self._connection()
        await connection.wait_until_open()
        async with connection.listing:
            if reload or connection.is_stale or self._tools is None:
                try:
                    listed = await connection.tools()
                except McpError:
                    if again and connection.has_no_session:
                        return await self._now(reload=reload, again=False)
                    raise
                # in a thread, so that the loop is not blocked
                await asyncio.to_thread(self._update_tools, listed, connection.refused)
        assert self._tools is not None
        return self._tools

    async def _renewed(self, name: str) -> Tool[..., Any] | None:
        """The current version of a tool, because a server may change a tool without notice."""
        return (await self._now(reload=True)).get(name)

    def _connection(self) -> Connection:
        """The connection of the running loop; a new connection if there is none or the old one has ended."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._takes_turns |= any(one.takes_turns for one in self._connections)
            self._connections = [one for one in self._connections if not one.is_closed]
            for known in self._connections:
                if known.loop is loop and not known.is_over:
                    return known
            made = Connection(self._address, self._options, takes_turns=self._takes_turns)
            self._connections.append(made)
            return made

    # --- its tools

    def _update_tools(self, listed: list[types.Tool], refused: list[str]) -> None:
        """Create tools from the server's list; tools that have not changed stay the same objects."""
        now = [one.model_dump(mode="json", by_alias=True) for one in listed]
        if now == self._listed:
            return
        included = ("*",) if self._include is None else self._include
        chosen = [
            one
            for one in listed
            if any(fnmatchcase(one.name, each) for each in included)
            and not any(fnmatchcase(one.name, each) for each in self._exclude)
        ]
        self._check_named([one.name for one in listed])
        before, made, notes = self._tools or {}, {}, list(refused)
        unchecked: list[str] = []
        for one in chosen:
            name = f"{self._prefix}{one.name}"
            if name in made:
                notes.append(
                    f"{name}: the server has two tools of that name; the second is left out"
                )
                continue
            try:
                tool = tool_of(
                    one,
                    self._call,
                    partial(self._renewed, name),
                    name=name,
                    server=self.label,
                    place=self._place,
                    options=self._tool_options,
                )
            except ToolError as error:
                notes.append(f"{name[:100]}: {error}")
                continue
            old = before.get(name)
            same = old is not None and old.code_digest == tool.code_digest and old.spec == tool.spec
            made[name] = old if old is not None and same else tool
            unchecked += [f"{name}: {problem}" for problem in unsearched(one)]
        known = set(self.notes)
        new = [note for note in map(escaped, notes) if note not in known]
        for note in new[:MAX_LOGGED]:
            logger.warning("%s: left out: %s", self.name, note)
        if len(new) > MAX_LOGGED:
            logger.warning(
                "%s: %d more were left out, see .notes", self.name, len(new) - MAX_LOGGED
            )
        self.notes = [escaped(note) for note in (*notes, *unchecked)]
        self._left_out, self._listed, self._tools = len(notes), now, made

    @property
    def _place(self) -> str:
        """An identifier of this server: a digest, because its address may contain credentials."""
        address = self._address
        where = address.argv if isinstance(address, Command) else (address.url,)
        return hashlib.sha256("\0".join(where).encode("utf-8", "replace")).hexdigest()

    def _check_named(self, names: list[str]) -> None:
        for one in (*(self._include or ()), *self._exclude):
            if one not in names and not set(one) & set("*?["):
                known = ", ".join(sorted(names)) or "none"
                raise ToolError(
                    f"{self.name} has no tool {one!r}{suggest(one, names) or f'. Available: {known}'}"
                )

    # --- calls

    async def _call(self, listed: types.Tool, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        """Send a call and return its result; send it again after each answer that the server needs first."""
        output = current_call.get()
        exchange = McpExchange(ctx, output, self.name, self._times, self._model)
        earlier = ctx.steps
        if ASKS_OUTSIDE in earlier:
            raise McpError(
                f"{self.name} was waiting for an answer to this call when the process ended. The call may or may not "
                "have taken effect, and is not sent again"
            )
        responses: dict[str, Any] | None = None
        state: str | None = None
        for number in range(1, MAX_ROUNDS + 1):
            step = f"the server asks ({number})"
            asked = earlier.get(step)
            if asked is None:
                params = types.CallToolRequestParams(
                    name=listed.name,
                    arguments=arguments,
                    input_responses=responses,
                    request_state=state,
                )
                connection = await self._turn(exchange)
                answer = await connection.call(exchange, params)
                if isinstance(answer, types.CallToolResult):
                    max_bytes = MAX_FILE_BYTES - size_of_all(ctx.messages)
                    return await asyncio.to_thread(
                        result_value, answer, listed.output_schema, max_bytes
                    )
                wanted = partial(answer.model_dump, mode="json", by_alias=True, exclude_none=True)
                asked = await ctx.step(step, wanted)
            responses = await self._responses(asked, exchange)
            state = asked.get("requestState")
        raise McpError(f"{self.name} asked {MAX_ROUNDS} times and sent no result")

    async def _turn(self, exchange: McpExchange) -> Connection:
        """The running loop's connection, once a call of this run can be sent; the call's time limits wait too."""
        with exchange.paused():
            while not (connection := self._connection()).may_send(exchange.run):  # noqa: ASYNC110 - as in connection.py
                await asyncio.sleep(CHECK)
        return connection

    async def _responses(self, asked: Any, exchange: McpExchange) -> dict[str, Any]:
        """Ask a person each question, and return the answers by key."""
        wanted = types.InputRequiredResult.model_validate(asked, by_name=False)
        answers: dict[str, Any] = {}
        for key, request in (wanted.input_requests or {}).items():
            if not isinstance(request, types.ElicitRequest | types.CreateMessageRequest):
                raise McpError(
                    f"{self.name} requested something that is not allowed during a call: {request.method}"
                )
            answer = await exchange.answer(request.params)
            if isinstance(answer, types.ErrorData):
                raise McpError(f"{self.name} cannot use a model: {answer.message}")
            answers[key] = answer
        return answers


@checks_keywords("nb.mcp")
def mcp(  # noqa: PLR0913 - keyword-only, one for each documented option
    source: ServerSource,
    *,
    name: str | None = None,
    server: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    auth: str | SecretStr | McpSignIn | httpx2.Auth | Literal[False] | None = None,
    protocol: str | None = None,
    approval: Approval = True,
    editable: bool = False,
    prefix: str = "",
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    timeout: float = TIMEOUT,
    max_total_timeout: float | None = None,
    connect_timeout: float = CONNECT,
    max_output: int | None = MAX_OUTPUT,
    roots: Iterable[str | os.PathLike[str]] = (),
    sampling: Model | str | None = None,
) -> McpServer:
    """An MCP server for an agent's ``tools``; the server is connected when a run needs it.

    Needs ``pip install "jupyter-nbagent[mcp]"``.

    Args:
        source: a command that starts the server (a string, or a list of words), the server's URL (streamable
            HTTP), a config as a dict (``command``, ``args``, ``env``, or ``url``, ``headers``; or ``mcpServers``
            with several of these), or the ``Path`` of a config file.
        name: the server's name for people; by default the name in the config, the program or the host. Only
            ``prefix`` changes the names of tools.
        server: the name of one of a config's servers.
        env: additional environment variables; the process otherwise gets only ``PATH``, ``HOME`` and similar ones.
        cwd: the process's working directory.
        headers: headers of each request to a URL.
        auth: a token for a URL; ``nb.McpSignIn(…)`` with OAuth settings; an ``httpx2.Auth``, such as those of
            ``mcp.client.auth``; or False to never sign in. By default, a person is asked to sign in if the server needs it.
        protocol: the protocol's version: "2026-07-28", or an older one for a server that asks during
            a call; the server may choose another older version. By default, the newest that both sides support.
        approval: whether a person approves each call, as in ``nb.tool``; True by default, because
            these tools are foreign code. A condition's second argument has ``annotations``.
        editable: whether the approval form can change the input.
        prefix: a prefix for the tools' names, for the model and for rules.
        include: the server's names of the tools to use, with ``*`` and ``?``; all by default.
        exclude: the names of tools to leave out.
        timeout: seconds without a message from the server after which a call fails; waiting for a person does not count.
        max_total_timeout: seconds after which a call fails even if the server reports progress; by default
            an hour, or ``timeout`` if that is longer.
        connect_timeout: seconds in which the server must start and list its tools.
        max_output: characters of a result that the model receives, as in ``nb.tool``.
        roots: folders that the server may work in.
        sampling: a model that the server may ask during a call, each time with a person's approval; none by default.

    Raises:
        UsageError: an argument is invalid.
    """
    if not isinstance(approval, bool) and (misfit := condition_misfit(approval)) is not None:
        raise UsageError(f"approval must be True, False or a condition. A condition {misfit}")
    for option, value in {"include": include, "exclude": exclude}.items():
        if isinstance(value, str):
            raise UsageError(f"{option} must be a list of names, such as [{value!r}]")
    total = max(TOTAL, timeout) if max_total_timeout is None else max_total_timeout
    times = {"timeout": timeout, "connect_timeout": connect_timeout, "max_total_timeout": total}
    for option, seconds in times.items():
        if not seconds > 0:
            raise UsageError(
                f"{option} must be a number of seconds greater than 0, got {seconds!r:.80}"
            )
    if protocol is not None and protocol not in KNOWN_PROTOCOL_VERSIONS:
        known = ", ".join(map(repr, KNOWN_PROTOCOL_VERSIONS))
        raise UsageError(
            f"protocol= must be a version of MCP, one of {known}, got {protocol!r:.80}"
        )
    return McpServer(
        source,
        {
            "name": name,
            "server": server,
            "env": env,
            "cwd": cwd,
            "headers": headers,
            "auth": auth,
            "protocol": protocol,
            "approval": approval,
            "editable": editable,
            "prefix": prefix,
            "include": None if include is None else tuple(include),
            "exclude": tuple(exclude),
            "timeout": float(timeout),
            "max_total_timeout": float(total),
            "connect_timeout": float(connect_timeout),
            "max_output": max_output,
            "roots": tuple(Path(one) for one in roots),
            "sampling": sampling,
        },
    )
