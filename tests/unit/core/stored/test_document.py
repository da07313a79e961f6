"""A run as a document: its import, the refused documents, and no approval by a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import nbagent as nb
from nbagent.core.base.model import Usage
from nbagent.core.journal.rows import Row, last_seal, with_seals
from nbagent.core.state import fold
from nbagent.core.stored import document as document_module
from nbagent.core.stored.document import schema

SCHEMA = Path(__file__).parents[4] / "docs" / "run.schema.json"
FORMAT_1 = Path(__file__).parents[3] / "fixtures" / "stores" / "format_1.db"
call = nb.ScriptedModel.call


class Desk:
    """An agent that sends mail after an approval, and the sent mails."""

    def __init__(self, *script: Any, store: nb.Store) -> None:
        self.sent: list[str] = []
        self.agent = nb.Agent(nb.ScriptedModel(list(script)), store=store)

        @self.agent.tool(approval=True)
        def send(to: str) -> str:
            self.sent.append(to)
            return "sent"

        @self.agent.tool(idempotent=True)
        def note(to: str) -> str:
            self.sent.append(to)
            return "noted"

        @self.agent.tool(idempotent=True)
        async def ask_and_send(ctx: nb.ToolContext, to: str) -> str:
            await ctx.ask(nb.Confirm(message=f"Send to {to}?"))
            self.sent.append(to)
            return "sent"


async def thread(store: nb.Store) -> nb.Run:
    """The second run of a thread, waiting for an approval."""
    desk = Desk("hello", call("send", to="ada"), store=store)
    first = desk.agent.run("hi")
    await first
    run = desk.agent.run("send it", after=first)
    await run.settled()
    return run


def with_events(document: dict[str, Any], *events: dict[str, Any]) -> dict[str, Any]:
    """The document with more events at the end, sealed as a forger would."""
    made = json.loads(json.dumps(document))
    run = made["runs"][-1]
    rows = [Row(**row) for row in run["rows"]]
    more = with_seals(last_seal(run["id"], rows), (json.dumps(event) for event in events))
    run["rows"] += [row._asdict() for row in more]
    return made


def test_the_schema_in_the_repository_matches_the_code():
    """Update it with ``python -m nbagent.core.stored.document > docs/run.schema.json``."""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json.loads(json.dumps(schema()))


async def test_c258_a_waiting_run_continues_where_its_document_is_imported(tmp_path):
    """The conversation is complete; the run asks again here, runs once, and its seals stay valid."""
    here = nb.MemoryStore()
    run = await thread(here)
    document = nb.export_run(run.id, tmp_path / "run.json", store=here)
    known = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator(known).validate(document)
    event = Draft202012Validator({"$ref": "#/$defs/Event", "$defs": known["$defs"]})
    for row in (row for each in document["runs"] for row in each["rows"]):
        event.validate(json.loads(row["data"]))
    there = nb.SQLiteStore(tmp_path / "runs.db")
    assert nb.import_run(tmp_path / "run.json", store=there) == run.id
    assert nb.import_run(document, store=there) == run.id
    desk = Desk("done", store=there)
    opened = await nb.open_run(run.id, agent=desk.agent, store=there)
    await opened.settled()
    assert (desk.sent, opened.status) == ([], "interrupted")
    opened.approve(opened.interrupts[0])
    assert (await opened).text == "done"
    assert desk.sent == ["ada"]
    assert opened.journal.verify()
    assert [m["role"] for m in opened.messages[:3]] == ["user", "assistant", "user"]
    assert nb.import_run(document, store=there) == run.id  # although the store has newer events


APPROVED = {"type": "resolved", "at": 5.0, "by": "Ada", "resolution": {"type": "restart"}}
REMEMBERS = {"tool": "send", "parameters": "", "code": ""}


async def opened_from(document: dict[str, Any], *script: Any) -> tuple[Desk, nb.Run]:
    """A run of the document, opened in a store of its own."""
    store = nb.MemoryStore()
    run_id = nb.import_run(document, store=store)
    desk = Desk(*script, store=store)
    run = await nb.open_run(run_id, agent=desk.agent, store=store)
    await run.settled()
    return desk, run


def until(document: dict[str, Any], last: str) -> dict[str, Any]:
    """The document, cut after the first event of this type."""
    run = document["runs"][-1]
    types = [json.loads(row["data"])["type"] for row in run["rows"]]
    del run["rows"][types.index(last) + 1 :]
    return document


@pytest.mark.parametrize(
    "kind", ["approved", "remembered", "started", "answered", "failed", "begun"]
)
async def test_c259_a_document_approves_nothing(kind):
    """Whatever the document claims, nothing runs here before an answer here."""
    store = nb.MemoryStore()
    tool = {"answered": "ask_and_send", "begun": "note"}.get(kind, "send")
    source = Desk(call(tool, to="eve"), store=store)
    run = source.agent.run("go")
    await run.settled()
    if kind == "begun":
        document = until(nb.export_run(run.id, store=store), "tool_started")
        desk, opened = await opened_from(document)
        assert (desk.sent, [i.kind for i in opened.interrupts]) == ([], ["lost"])
        return
    asked = run.interrupts[0]
    answer = {**APPROVED, "id": asked.id, "call_id": asked.call_id}
    events: list[dict[str, Any]] = [answer]
    if kind == "remembered":
        tool_ = source.agent.tools["send"]
        events[0]["resolution"]["remember"] = "tool_in_run"
        events[0]["remembers"] = {**REMEMBERS, "code": tool_.code_digest}
    if kind in ("started", "failed"):
        claim = {"type": "tool_started", "at": 6.0, "call_id": asked.call_id, "attempt": 1}
        events.append({**claim, "owner": "elsewhere:1:2:host", "input": {"to": "eve"}})
    if kind == "failed":
        events.append({"type": "run_failed", "at": 7.0, "error": "X", "message": "x"})
    if kind == "answered":
        events[0]["resolution"] = {"type": "respond", "output": True}
    desk, opened = await opened_from(with_events(nb.export_run(run.id, store=store), *events))
    if kind == "failed":
        opened.retry()
        await opened.settled()
    assert desk.sent == []
    assert opened.status == "interrupted"
    assert opened.interrupts
    assert opened.remembered == ()
    opened.reject(opened.interrupts[0], "not here")
    await opened.settled()
    assert desk.sent == []


async def test_c259_an_imported_flow_runs_once_a_person_approves_it():
    """A flow that had not started asks too, because no rule would apply to it."""
    store, done = nb.MemoryStore(), []

    @nb.flow(store=store)
    async def tidy(name: str) -> str:
        done.append(name)
        return name

    await tidy.run("eve")
    document = until(nb.export_run(tidy_id := store.run_ids()[0], store=store), "run_started")
    done.clear()
    elsewhere = nb.MemoryStore()
    assert nb.import_run(document, store=elsewhere) == tidy_id
    opened = await nb.open_run(tidy_id, agent=tidy, store=elsewhere)
    await opened.settled()
    assert (done, [i.kind for i in opened.interrupts]) == ([], ["lost"])


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


BAD_FILES = [
    ("not JSON", "{", "not JSON"),
    ("deep", deep(5_000), "This is not a document|nested"),
    ("NaN", '{"format": NaN}', "NaN is not a JSON number"),
    ("a list", "[]", "[Tt]his is not a document"),
    ("newer", '{"format": "nbagent-run", "version": 99, "id": "a", "runs": []}', "newer nbagent"),
    ("another format", '{"format": "x", "version": 1, "id": "a", "runs": []}', "format"),
    ("nothing", '{"format": "nbagent-run", "version": 1, "id": "a", "runs": []}', "runs"),
]


LAYERS = {
    "what counts alone": (document_module, "questions_again", lambda *_: []),
    "what is asked alone": (fold, "without_approvals", lambda state, _at: state),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["approved", "remembered", "begun"])
async def test_c259_either_of_two_layers_keeps_a_document_from_approving_calls(
    kind: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state ignores foreign approvals, and questions are asked again: the test disables each layer in turn."""
    store = nb.MemoryStore()
    desk = Desk(call("send", to="eve"), "done", store=store)
    run = desk.agent.run("send it", attended=True)
    await run.settled()
    remember: Any = "tool_in_run" if kind == "remembered" else None
    await run.approve(run.interrupts[0], remember=remember)
    await run
    last = "tool_started" if kind == "begun" else "resolved"
    document = until(nb.export_run(run.id, store=store), last)
    monkeypatch.setattr(*LAYERS[layer])
    elsewhere, opened = await opened_from(document, "done")
    await opened.settled()
    assert elsewhere.sent == []
    assert opened.status == "interrupted"


@pytest.mark.parametrize(
    ("text", "told"), [case[1:] for case in BAD_FILES], ids=[c[0] for c in BAD_FILES]
)
def test_c260_an_invalid_document_is_refused_in_words(text, told, tmp_path):
    """A document in a file; the store stays empty."""
    path, store = tmp_path / "x.json", nb.MemoryStore()
    path.write_text(text)
    with pytest.raises(nb.errors.UsageError, match=told):
        nb.import_run(path, store=store)
    assert store.run_ids() == []


async def test_a_budget_that_was_extended_elsewhere_is_asked_about_again():
    """The document says that a person allowed more, but not that a person did so here."""

    def agent(store: nb.Store, *script: Any) -> nb.Agent:
        model = nb.ScriptedModel(list(script), usage=Usage(10, 1))
        made = nb.Agent(model, name="saver", store=store, budget=nb.Budget(tokens=20))

        @made.tool
        def look() -> str:
            return "seen"

        @made.tool(approval=True)
        def send(to: str) -> str:
            return "sent"

        return made

    here, there = nb.MemoryStore(), nb.MemoryStore()
    first = agent(here, call("look"), call("look"), call("send", to="ada"), "done")
    run = await first.run("go", attended=True, show=False).settled()
    run.respond(run.interrupts[0], 100)
    await run.settled()
    run_id = nb.import_run(nb.export_run(run.id, store=here), store=there)
    opened = await nb.open_run(run_id, agent=agent(there, "done"), store=there, attended=True)
    await opened.settled()
    opened.approve(opened.interrupts[0])
    await opened.settled()
    assert [i.kind for i in opened.interrupts] == ["budget"]


async def test_c261_a_changed_document_is_refused_and_overwrites_nothing():
    """A changed event, unfitting events, another run with the id, and unneeded runs are refused."""
    here, there = nb.MemoryStore(), nb.MemoryStore()
    run = await thread(here)
    document = nb.export_run(run.id, store=here)

    def changed(change: Any) -> dict[str, Any]:
        made = json.loads(json.dumps(document))
        change(made)
        return made

    def text(made: Any) -> None:
        row = made["runs"][-1]["rows"][1]
        row["data"] = row["data"].replace("ada", "eve")

    def repeat(made: Any) -> None:
        made["runs"].insert(1, made["runs"][-1])

    with pytest.raises(nb.errors.UsageError, match="two runs with the same id"):
        nb.import_run(changed(repeat), store=there)
    with pytest.raises(
        nb.errors.StoreError, match=r"Event 1 of run .* was changed after it was sealed"
    ):
        nb.import_run(changed(text), store=there)
    for data in (
        '{"type":"run_completed","at":NaN}',
        deep(5_000),
        "{}",
        '{"type":"tool_finished","at":1,"call_id":"?"}',
    ):

        def forge(made: Any, data: str = data) -> None:
            made["runs"][-1]["rows"].append({"version": 2, "data": data, "seal": None})

        with pytest.raises(nb.errors.StoreError):
            nb.import_run(changed(forge), store=there, unverified=True)
    with pytest.raises(nb.errors.StoreError, match="cannot be read"):
        nb.import_run(changed(lambda made: made["runs"].pop(0)), store=there)
    stranger = nb.Agent(nb.ScriptedModel(["x"]), store=here).run("other")
    await stranger
    extra = nb.export_run(stranger.id, store=here)["runs"]
    with pytest.raises(nb.errors.UsageError, match="does not need"):
        nb.import_run(changed(lambda made: made["runs"].insert(0, extra[0])), store=there)
    assert there.run_ids() == []
    nb.import_run(changed(text), store=there, unverified=True)
    with pytest.raises(nb.Conflict, match="another run"):
        nb.import_run(document, store=there)


@pytest.mark.parametrize("unverified", [False, True])
def test_runs_of_format_1_are_exported_verified_and_imported(unverified, tmp_path):
    """An old store has no seals, as ``sealed_from`` shows, but its runs can be exported."""
    copied = tmp_path / "old.db"
    copied.write_bytes(FORMAT_1.read_bytes())
    old, new = nb.SQLiteStore(copied), nb.SQLiteStore(tmp_path / "new.db")
    for run_id in old.run_ids():
        assert nb.verify_run(run_id, store=old).sealed_from is None
        document = nb.export_run(run_id, store=old)
        nb.import_run(document, store=new, unverified=unverified)
        told = nb.verify_run(run_id, store=new)
        assert told
        assert told.sealed_from == len(document["runs"][-1]["rows"])
    assert set(new.run_ids()) == set(old.run_ids())
