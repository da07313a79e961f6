"""Secrets over time: calls whose secret is not in this process or has left it."""

from __future__ import annotations

import gc
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    Secret,
    SecretStr,
    TypeAdapter,
)

import nbagent as nb
from nbagent.core.base import secrets
from nbagent.core.base.errors import Misuse
from nbagent.core.base.events import Resolved
from nbagent.core.base.interrupts import SECRET_GONE
from nbagent.core.base.process import this_process
from nbagent.core.base.secrets import MASK, SecretPlaces, SecretSchema, is_mask, revealed
from nbagent.notebook.view.questions import Question
from tests.until import until

call = nb.ScriptedModel.call


class Login(BaseModel):
    """Who, and the proof."""

    user: str
    password: SecretStr


class Door:
    """A tool with a secret, for several processes."""

    def __init__(self, store: nb.Store, *steps: Any, **options: Any) -> None:
        self.got: list[str] = []
        self.store = store
        self.model = nb.ScriptedModel(list(steps))
        self._options = options

    def agent(self, **options: Any) -> nb.Agent:
        """A new agent, as in each process."""
        agent = nb.Agent(self.model, store=self.store, **options)

        @agent.tool(**self._options)
        def login(input: Login) -> str:  # noqa: A002 - a whole model is called so
            self.got.append(input.password.get_secret_value())
            return f"{input.user} is in"

        return agent


@pytest.fixture
def store(tmp_path):
    """A store in a file, which contains no secret."""
    with nb.SQLiteStore(tmp_path / "runs.db") as made:
        yield made


GIVEN = {"user": "ann", "password": "hunter2"}


@pytest.mark.parametrize("options", [{"approval": True}, {"approval": True, "editable": ["user"]}])
async def test_a_lost_secret_is_requested_and_no_mask_is_used(store, options):
    """Approving masked input is an error that says what to do; with the secret the call runs."""
    door = Door(store, call("login", **GIVEN), "done", **options)
    first = await door.agent().run("go", attended=False).settled()
    elsewhere = await nb.open_run(first.id, agent=door.agent(), store=store, attended=False)
    (asked,) = elsewhere.interrupts
    masked = dict(asked.input)
    assert is_mask(masked["password"])
    for wrong in (None, masked, {**GIVEN, "password": MASK}):
        with pytest.raises(
            nb.errors.InvalidAnswer, match=r"secrets in password .* Enter them again"
        ):
            elsewhere.restart(asked, new_input=wrong)
    assert door.got == []
    elsewhere.restart(asked, new_input={**GIVEN, "password": "again"})
    assert (await elsewhere).text == "done"
    assert door.got == ["again"]
    await first.settled()


async def test_a_call_that_is_taken_over_asks_for_its_secret(store):
    """The first process ended after the model's call was stored; the next one asks for the secret."""
    door = Door(store, call("login", **GIVEN), "done", "done")
    finished = door.agent().run("go", attended=False)
    await finished
    responded = next(e for e in store.read(finished.id) if e.type == "model_responded")
    copied = store.read(finished.id)
    store.append("died", copied[: copied.index(responded) + 1], 0)
    run = await nb.open_run("died", agent=door.agent(), store=store, attended=False)
    await run.settled()
    (asked,) = run.interrupts
    assert (asked.note, asked.expects, asked.editable) == (SECRET_GONE, "edit", ("password",))
    run.restart(asked, new_input=GIVEN)
    await run
    assert door.got == ["hunter2", "hunter2"]


async def test_an_answer_accepted_elsewhere_leaves_its_secret_there(store):
    """Another process stored the answer, with a mask; a body that waits here asks again."""
    got = []
    agent = nb.Agent(nb.ScriptedModel([call("login"), "done"]), store=store)

    @agent.tool
    async def login(ctx: nb.ToolContext) -> str:
        got.append((await ctx.ask("How?", reply=Login)).password.get_secret_value())
        return "in"

    run = await agent.run("go", attended=True, show=False).settled()
    (first,) = run.interrupts
    masked = {**GIVEN, "password": f"{MASK}#01234567"}
    answer = Resolved(
        at=1.0,
        id=first.id,
        call_id=first.call_id,
        resolution=nb.Respond(masked),
        by="form",
        owner=this_process(),
    )
    store.append(run.id, [answer], len(store.read(run.id)))
    await until(lambda: run.interrupts and run.interrupts[0].id != first.id)
    assert (run.interrupts[0].note, got) == (SECRET_GONE, [])
    run.respond(run.interrupts[0], GIVEN)
    assert (await run).text == "done"
    assert got == ["hunter2"]


async def test_a_mask_copied_by_a_model_is_not_a_password(store):
    """The model saw the mask in an earlier call: the secret behind the mask belongs to that call."""
    seen = []

    def copying(messages: Any) -> Any:
        part = messages[1]["content"][0]
        seen.append(part["input"]["password"])
        return call("login", user="eve", password=seen[0])

    door = Door(store, call("login", **GIVEN), copying, "done")
    run = await door.agent().run("go", attended=False).settled()
    assert is_mask(seen[0])
    assert [asked.note for asked in run.interrupts] == [SECRET_GONE]
    assert door.got == ["hunter2"]
    await run.cancel()


async def test_a_retry_of_a_failed_run_gives_the_body_its_secret_again(store):
    """The process still has the secret, because the call is not done."""
    got = []
    agent = nb.Agent(
        nb.ScriptedModel([call("login", **GIVEN), "done"]), store=store, on_tool_error="raise"
    )

    @agent.tool
    def login(input: Login) -> str:  # noqa: A002 - a whole model is called so
        got.append(input.password.get_secret_value())
        if len(got) == 1:
            raise OSError("line is down")
        return "in"

    run = agent.run("go", attended=False)
    with pytest.raises(nb.errors.ToolFailed):
        await run
    run.retry()
    assert (await run).text == "done"
    assert got == ["hunter2", "hunter2"]


async def test_messages_that_went_through_json_ask_for_the_secret_again(store):
    """A saved history has no secret; the original objects still have it."""
    door = Door(store, call("login", **GIVEN), "done", "done", approval=True)
    agent = door.agent()
    first = await agent.generate("go")
    (asked,) = first.interrupts
    second = await agent.generate(messages=first.messages, tool_restarts=[nb.tool_restart(asked)])
    assert (second.text, door.got) == ("done", ["hunter2"])
    saved = json.loads(json.dumps(first.messages))
    with pytest.raises(nb.errors.InvalidAnswer, match="secrets in password"):
        await agent.generate(messages=saved, tool_restarts=[nb.Restart(interrupt=asked)])
    given = nb.Restart(GIVEN, interrupt=asked)
    third = await agent.generate(messages=saved, tool_restarts=[given])
    assert (third.text, door.got) == ("done", ["hunter2", "hunter2"])


async def test_a_refused_answer_is_not_echoed(store):
    """The answer may be the secret itself, so the error only names its type."""
    door = Door(store, call("login", **GIVEN), approval=True)
    agent = door.agent()
    run = agent.run("go", attended=False, answers={"login": "hunter2"})
    given = nb.Restart({"user": "ann", "password": "hunter2"}, interrupt="i")
    for refused in (
        lambda: run,
        lambda: agent.run("go", answers="hunter2"),
        lambda: agent.generate(messages=[], tool_responses=[given]),
        lambda: run.resolve(run.interrupts[0], "hunter2"),
        lambda: run.restart(run.interrupts[0], data={"hunter2": object()}),
    ):
        with pytest.raises(nb.errors.UsageError) as caught:
            await refused()
        error = caught.value
        assert "hunter2" not in f"{error} {error.__cause__}"
    await run.cancel()


async def test_an_edited_secret_is_reported_as_edited_without_its_value(store):
    """The model learns that a person changed the arguments; the new secret is masked."""
    door = Door(store, call("login", **GIVEN), "done", approval=True)
    run = await door.agent().run("go", attended=False).settled()
    run.restart(run.interrupts[0], new_input={**GIVEN, "password": "another"})
    await run
    told = run.messages[2]["content"][0]["output"]
    assert told.startswith(
        'A person changed the arguments of this call to {"user":"ann","password":"***'
    )
    assert "another" not in told


async def test_always_allow_does_not_cover_another_secret(store):
    """No secret is stored for comparison: "this input" is refused, and "this tool" is offered."""
    door = Door(store, call("login", **GIVEN), call("login", **GIVEN), "done", approval=True)
    run = await door.agent().run("go", attended=False).settled()
    for remember in ("input", "input_in_run"):
        with pytest.raises(nb.errors.InvalidAnswer, match="a secret"):
            run.approve(run.interrupts[0], remember=remember)
    offered = Question.of(run.interrupts[0]).item("k", "", "").remember
    assert [one.id for one in offered] == ["tool_in_run", "tool"]
    run.approve(run.interrupts[0], remember="tool_in_run")
    assert (await run).text == "done"
    assert GIVEN["password"] not in repr((run.remembered, run.messages, run.journal))


async def test_a_secret_is_released_with_its_call():
    """Memory has no secret of a call that is done, rejected, answered or cancelled."""
    ends = {
        "restart": lambda run, asked: run.restart(asked),
        "edit": lambda run, asked: run.restart(asked, new_input={**GIVEN, "password": "new"}),
        "reject": lambda run, asked: run.reject(asked),
        "respond": lambda run, asked: run.respond(asked, "no"),
    }
    gc.collect()
    before = len(secrets.live_masks)
    kept = []
    for end in [*ends.values(), None]:
        door = Door(nb.MemoryStore(), call("login", **GIVEN), "done", approval=True)
        run = await door.agent().run("go", attended=False).settled()
        kept.append(run)
        assert len(secrets.live_masks) == before + 1
        if end is None:
            await run.cancel()
        else:
            end(run, run.interrupts[0])
            await run
        assert len(secrets.live_masks) == before
        assert "hunter2" not in repr(revealed(run.messages))


@pytest.mark.parametrize("where", ["state", "step", "default"])
async def test_data_stored_for_a_tool_cannot_contain_a_secret(where):
    """Stored data would have a mask, so a secret in such data is an error."""
    agent = nb.Agent(nb.ScriptedModel([call("login")]))

    @agent.tool
    async def login(ctx: nb.ToolContext) -> str:
        secret = Login(user="ann", password=SecretStr("hunter2"))
        if where == "state":
            ctx.interrupt("?", state={"deep": [secret]})
        if where == "step":
            await ctx.step("fetch", lambda: secret)
        await ctx.ask("?", reply=Login, expires_in=60, on_expire=nb.Respond(secret))
        return "in"

    with pytest.raises(Misuse, match="secret") as caught:
        await agent.run("go", attended=False)
    assert "hunter2" not in str(caught.value)


async def test_middleware_that_passes_a_mask_runs_nothing(store):
    """For example middleware that dumps the input to JSON and loads it again."""

    async def through_json(tool_call: Any, next: Any) -> Any:  # noqa: A002 - the usual word
        tool_call.input = tool_call.input.model_dump(mode="json")
        return await next(tool_call)

    door = Door(store, call("login", **GIVEN))
    with pytest.raises(Misuse, match="passed a masked secret in password"):
        await door.agent(middleware=[through_json, nb.ToolErrorsToText()]).run("go", attended=False)
    assert door.got == []


# --- which parts are secret

LEAF = {"type": "string"}
SECRET = {"type": "string", "writeOnly": True}


@st.composite
def documents(draw, depth=3):
    """A schema and a fitting value, whose texts say whether they are secret."""
    kind = draw(
        st.sampled_from(
            ["plain", "secret", "password"] + ["object", "list", "map", "any"] * (depth > 0)
        )
    )
    name = "plain" if kind == "plain" else "secret"
    text = f"{name}{draw(st.integers(0, 10**9))}"
    schema = {"plain": LEAF, "secret": SECRET, "password": {"format": "password"}}.get(kind)
    if schema is not None:
        return schema, text
    schema, value = draw(documents(depth=depth - 1))
    if kind == "list":
        return {"items": schema}, [value]
    if kind == "map":
        return {"additionalProperties": schema}, {"key": value}
    if kind == "any":
        return {"anyOf": [{"type": "null"}, schema]}, value
    other, beside = draw(documents(depth=depth - 1))
    properties = {"properties": {"a": schema, "b": other}, "additionalProperties": False}
    return properties, {"a": value, "b": beside}


@given(documents())
def test_exactly_the_secret_parts_are_masked_and_restored(document):
    """The JSON has masks for secrets and the other texts unchanged, and the value can be restored."""
    schema, value = document
    places = SecretPlaces({"$ref": "#/$defs/x", "$defs": {"x": schema}})
    sealed = places.seal(value)
    kept = json.loads(json.dumps(sealed))
    for was, is_ in zip(_texts(value), _texts(kept), strict=True):
        assert is_mask(is_) if was.startswith("secret") else is_ == was
    has_secret = any(text.startswith("secret") for text in _texts(value))
    assert revealed(sealed) == value
    assert places.seal(value, like=sealed) == sealed
    assert (places.missing(sealed), bool(places.missing(kept))) == ([], has_secret)
    secrets.release(sealed)
    assert bool(places.missing(sealed)) is has_secret


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value]


class Leaf(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    key: SecretStr = Field(alias="apiKey")
    note: str = ""


class Cat(BaseModel):
    kind: Literal["cat"]
    name: SecretStr


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Deep(BaseModel):
    key: SecretStr = Field(validation_alias=AliasPath("deep", "key"))


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, SecretStr]


class Tree(BaseModel):
    key: SecretStr | None = None
    kids: list[Tree] = []


KINDS: dict[str, tuple[Any, Any]] = {
    "by alias": (Leaf, {"apiKey": "hidden", "note": "plain"}),
    "by name": (Leaf, {"key": "hidden", "note": "plain"}),
    "by a path": (Deep, {"deep": {"key": "hidden"}}),
    "of one tag": (Cat | Dog, {"kind": "cat", "name": "hidden"}),
    "of another tag": (Cat | Dog, {"kind": "dog", "name": "plain"}),
    "a tree": (Tree, {"kids": [{"key": "hidden", "kids": [{"key": "hidden"}]}]}),
    "in names of its own": (Loose, {"any": "hidden"}),
    "in a text": (Json[Leaf], '{"apiKey": "hidden"}'),
    "in a tuple": (tuple[str, SecretStr], ["plain", "hidden"]),
    "whole": (Secret[Leaf], {"apiKey": "hidden"}),
    "beside a number": (int | SecretStr, "hidden"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_finds_its_secret_under_every_name(kind):
    """The JSON has no secret and all other texts, and a mask without its secret counts as missing."""
    type_, value = KINDS[kind]

    def fn(x: Any) -> None:
        """Take it."""

    fn.__annotations__["x"] = type_
    made = nb.tool(name="fn")(fn)
    sealed = made.sealed({"x": value})
    text = json.dumps(sealed)
    assert "hidden" not in text
    assert ("plain" in text) is ("plain" in json.dumps(value))
    assert made.parse(sealed) == made.parse({"x": value})
    assert made.missing_secrets(json.loads(text)) == (
        ["x"] if "hidden" in json.dumps(value) else []
    )
    assert "hidden" not in json.dumps(made.masked(sealed))


def test_every_secret_of_pydantic_is_marked_in_its_schema():
    """``Secret[T]`` too, which pydantic's own schema does not mark."""
    for kind in (SecretStr, Secret[int], Secret[dict[str, str]], list[Secret[float]] | None):
        schema = TypeAdapter(kind).json_schema(schema_generator=SecretSchema)
        assert secrets.schema_has_secret(schema)
