"""Only a tool's body gets a secret: every way in, and every place where it could be read."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, Secret, SecretBytes, SecretStr

import nbagent as nb
from nbagent.core.base import secrets
from nbagent.core.base.events import dump
from nbagent.core.base.model import ToolCallDelta
from nbagent.core.run.run import Run, session_of
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.render import plain, static
from tests.until import until

SECRET = "hunter2-sentinel"
OTHER = "letmein-sentinel"
call = nb.ScriptedModel.call


class Login(BaseModel):
    """Who, and the proof."""

    user: str
    password: SecretStr = Field(max_length=20)


class Place:
    """An agent with a model and a file, and all that can be read of them."""

    def __init__(self, path: Path, caplog: pytest.LogCaptureFixture, **options: Any) -> None:
        self.file = path / "runs.db"
        self.store = nb.SQLiteStore(self.file)
        self.model = nb.ScriptedModel([])
        self.agent = nb.Agent(self.model, store=self.store, **options)
        self.got: list[Any] = []
        """Secrets that bodies received."""
        self.told: list[Any] = []
        """Anything else that a person or a program may see."""
        self.sent: list[Any] = []
        self.heard: list[Any] = []
        self._caplog = caplog

    def script(self, *steps: Any) -> None:
        """Set the model's responses."""
        self.model = nb.ScriptedModel([*steps, "done"])
        self.agent.model = self.model

    async def run(self, *steps: Any) -> Run:
        """A run with a card, up to its question."""
        self.script(*steps)
        run = self.agent.run("go", attended=True, show=False)
        session_of(run).journal.subscribe(self.heard.append)
        self.card = RunCard(run)
        self.card.send = lambda content, **_: self.sent.append(content)
        await run.settled()
        self.look(run)
        return run

    def look(self, run: Run) -> None:
        """Record all that can be seen of a run now."""
        view = self.card._view()
        self.card._handle({"type": "hello"})
        self.told += [repr(run), repr(run.interrupts), repr(run.calls), repr(run.messages)]
        self.told += [
            repr(self.store.read(run.id)),
            str(run.interrupts),
            repr(session_of(run).state),
        ]
        self.told += [static.render(view), plain.render(view), self.card.get_state()]
        self.told += [json.dumps(item) for item in run.messages]
        self.told += [pickle.dumps(session_of(run).state.messages)]

    def press(self, run: Run, **fields: str) -> None:
        """Approve in the form, with these texts typed."""
        (asked,) = run.interrupts
        drafts = {"fields": {name: {"text": text} for name, text in fields.items()}}
        about = {"interrupt": asked.id, "drafts": drafts if fields else None}
        self.card._handle({"type": "drafts", **about})
        self.look(run)
        action = "approve" if asked.kind == "approval" else "submit"
        self.card._handle({"type": "answer", "submission": "s", "action": action, **about})
        assert self.sent[-1]["ok"], self.sent[-1]

    def raised(self, error: BaseException) -> None:
        """Record an error as a notebook shows it."""
        self.told += ["".join(traceback.format_exception(error)), repr(error)]
        self.told += [repr(getattr(error, "errors", None)), repr(getattr(error, "messages", None))]

    def everything(self) -> str:
        """All records as one text."""
        files = [path.read_bytes() for path in self.file.parent.glob("runs.db*")]
        events = [[dump(e), repr(e)] for run in self.store.run_ids() for e in self.store.read(run)]
        seen = [files, events, self.told, self.sent, self.heard, self._caplog.text]
        seen += [self.model.requests, [json.dumps(r.messages) for r in self.model.requests]]
        return repr(seen)


@pytest.fixture
def place(tmp_path, caplog):
    """An agent in a file."""
    caplog.set_level(0)
    made = Place(tmp_path, caplog)
    yield made
    made.card.detach()
    made.card.close()
    made.store.close()


def login_tool(place: Place, **options: Any) -> None:
    """A tool with a secret, which records it."""

    @place.agent.tool(**options)
    def login(input: Login) -> str:  # noqa: A002 - a whole model is called so
        place.got.append(input.password.get_secret_value())
        return f"{input.user} is in"


async def by_the_model(place: Place) -> None:
    """The model's own input, run at once."""
    login_tool(place)
    await place.run(call("login", user="ann", password=SECRET))


async def shown_and_approved(place: Place) -> None:
    """The model's own input, approved with the form's field untouched."""
    previewed: list[str] = []

    def preview(typed: Login) -> str:
        previewed.append(typed.password.get_secret_value())
        return f"as {typed.user} with {previewed[-1]}"

    login_tool(place, approval=True, editable=["user"], preview=preview)
    run = await place.run(call("login", user="ann", password=SECRET))
    await until(lambda: bool(previewed))
    assert previewed == [secrets.MASK]
    place.press(run)
    place.look(await run.settled())


async def typed_in_the_form(place: Place) -> None:
    """A person replaces the secret in the form."""
    login_tool(place, approval=True, editable=True)
    run = await place.run(call("login", user="ann", password="?"))
    place.press(run, password=SECRET)
    place.look(await run.settled())


async def replaced_by_code(place: Place) -> None:
    """Code replaces the secret, after invalid attempts."""
    login_tool(place, approval=True)
    run = await place.run(call("login", user="ann", password=OTHER))
    for wrong in (
        {"user": 5, "password": SECRET},
        {"user": "a", "password": SECRET * 3},
        {"pin": SECRET},
    ):
        with pytest.raises(nb.errors.InvalidAnswer) as caught:
            run.restart(run.interrupts[0], new_input=wrong)
        place.raised(caught.value)
    replacement = Login(user="ann", password=SecretStr(SECRET))
    place.told.append(repr(run.interrupts[0].restart(new_input=replacement)))
    run.restart(run.interrupts[0], new_input=replacement)
    place.look(await run.settled())
    place.look(run)


async def of_other_types(place: Place) -> None:
    """Numbers, bytes and marked strings, nested and under other names."""

    class Deep(BaseModel):
        plain: Annotated[str, Field(json_schema_extra={"writeOnly": True})]
        key: SecretStr = Field(validation_alias=AliasChoices("key", "apiKey"))

    @place.agent.tool
    def login(
        deep: list[Deep], pins: dict[str, Secret[int]], raw: SecretBytes | None, seen: str
    ) -> str:
        place.got.append(deep[0].plain)
        place.got.append(deep[0].key.get_secret_value())
        place.got.append(str(pins["a"].get_secret_value()))
        place.got.append(raw.get_secret_value().decode())
        return seen

    deep = [{"plain": SECRET, "apiKey": SECRET, "more": 1}]
    await place.run(call("login", deep=deep, pins={"a": 424242}, raw=SECRET, seen="seen"))
    assert place.got.pop(2) == "424242"
    assert "424242" not in place.everything()


async def by_middleware(place: Place) -> None:
    """A middleware gets the object itself, and may replace it."""
    seen = []

    async def vault(tool_call: Any, next: Any) -> Any:  # noqa: A002 - the usual word
        seen.append(tool_call.input.password)
        tool_call.input = tool_call.input.model_copy(update={"password": SecretStr(SECRET)})
        return await next(tool_call)

    place.agent.middleware = [nb.Retry(2), vault]
    login_tool(place, approval=True)
    run = await place.run(call("login", user="ann", password="from-vault"))
    run.restart(run.interrupts[0])
    place.look(await run.settled())
    assert {each.get_secret_value() for each in seen} == {"from-vault"}


async def by_middleware_that_breaks_it(place: Place) -> None:
    """Invalid input from a middleware is an error that names the place; a failed body is run again."""
    tries: list[str] = []

    async def breaks(tool_call: Any, next: Any) -> Any:  # noqa: A002 - the usual word
        if tool_call.input.user == "bad":
            update = {"user": ["no text"], "password": SecretStr(SECRET)}
            tool_call.input = tool_call.input.model_copy(update=update)
        return await next(tool_call)

    place.agent.middleware = [nb.Retry(2), breaks]

    @place.agent.tool(idempotent=True)
    def login(input: Login) -> str:  # noqa: A002
        tries.append(input.user)
        if tries == ["ann"]:
            raise OSError("line is down")
        place.got.append(input.password.get_secret_value())
        return "in"

    calls = [call("login", user=user, password=SECRET) for user in ("bad", "ann")]
    run = await place.run(*calls)
    assert tries == ["ann", "ann"]
    assert "does not match the schema of login: user" in run.calls["login"][0].error


async def asked_in_the_middle(place: Place) -> None:
    """``ctx.ask`` for a secret, in a form."""

    @place.agent.tool
    async def login(ctx: nb.ToolContext) -> str:
        given = await ctx.ask("How?", reply=Login)
        place.got.append(given.password.get_secret_value())
        return "in"

    run = await place.run(call("login"))
    with pytest.raises(nb.errors.InvalidAnswer) as caught:
        run.respond(run.interrupts[0], {"user": 5, "password": SECRET})
    place.raised(caught.value)
    place.press(run, user="ann", password=SECRET)
    place.look(await run.settled())


async def asked_and_answered_by_code(place: Place) -> None:
    """``ctx.ask_sync`` for a secret alone."""

    @place.agent.tool
    def login(ctx: nb.ToolContext) -> str:
        place.got.append(ctx.ask_sync("How?", reply=SecretStr).get_secret_value())
        return "in"

    run = await place.run(call("login"))
    run.respond(run.interrupts[0], SecretStr(SECRET))
    place.look(await run.settled())


async def shown_in_metadata(place: Place) -> None:
    """Metadata of a type that marks its secrets, and the data of a restart."""

    class Why(BaseModel):
        message: str
        key: SecretStr
        plain: Annotated[str, Field(json_schema_extra={"format": "password"})]

    @place.agent.tool
    def login(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(Why(message="?", key=SecretStr(SECRET), plain=SECRET))
        place.got.append(ctx.resumed_as(dict)["pin"])
        return "in"

    run = await place.run(call("login"))
    run.restart(run.interrupts[0], data={"pin": SecretStr(SECRET)})
    place.look(await run.settled())


async def inside_an_agent(place: Place) -> None:
    """A tool of an inner agent takes a secret and returns it."""
    inner = nb.Agent(
        nb.ScriptedModel([call("login", user="a", password=SECRET), "in"]), name="clerk"
    )

    @inner.tool(approval=True)
    def login(input: Login) -> Login:  # noqa: A002
        place.got.append(input.password.get_secret_value())
        return input

    place.agent.add(inner.as_tool())
    run = await place.run(call("clerk", prompt="log in"))
    run.restart(run.interrupts[0])
    place.look(await run.settled())
    place.told.append(inner.model.requests)


async def step_by_step(place: Place) -> None:
    """``generate``: the messages are plain data, and new input goes to the body."""
    login_tool(place, approval=True)
    place.card = RunCard(place.agent.run("idle", attended=True, show=False))
    place.script(call("login", user="ann", password=OTHER))
    first = await place.agent.generate("go")
    place.told += [repr(first), json.dumps(first.messages), pickle.dumps(first.messages)]
    restart = nb.tool_restart(
        first.interrupts[0], new_input=Login(user="ann", password=SecretStr(SECRET))
    )
    place.told += [repr(restart), restart.model_dump_json(), restart.model_dump()]
    second = await place.agent.generate(messages=first.messages, tool_restarts=[restart])
    place.told += [repr(second), json.dumps(second.messages)]
    assert second.text == "done"


async def in_broken_arguments(place: Place) -> None:
    """The arguments are not JSON; then a key is wrong."""
    place.got.append(SECRET)
    login_tool(place)
    broken = ToolCallDelta(0, f'{{"password": "{SECRET}', id="c1", name="login")
    await place.run([broken], call("login", user="ann", pasword=SECRET))


DOORS: list[Callable[[Place], Awaitable[None]]] = [
    by_the_model,
    shown_and_approved,
    typed_in_the_form,
    replaced_by_code,
    of_other_types,
    by_middleware,
    by_middleware_that_breaks_it,
    asked_in_the_middle,
    asked_and_answered_by_code,
    shown_in_metadata,
    inside_an_agent,
    step_by_step,
    in_broken_arguments,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_a_secret_reaches_the_body_and_nothing_else(place, door):
    """A secret is in no event, file, page, message, log, error or request."""
    await door(place)
    assert set(place.got) == {SECRET}
    found = place.everything()
    assert "login" in found
    for secret in (SECRET, OTHER, "from-vault"):
        at = found.find(secret)
        assert at < 0, found[max(0, at - 300) : at + 100]
