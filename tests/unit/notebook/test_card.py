"""The live card as a widget, without a kernel."""

from __future__ import annotations

import nbagent as nb
from nbagent.notebook.card import RunCard


async def test_the_first_paint_has_the_prompt():
    """What a page draws before its hello is answered is the run as it stands, not an empty frame."""
    run = nb.Agent(nb.ScriptedModel(["hi"]), name="guide").run("Hello there")
    card = RunCard(run)
    head = card.get_state()["snapshot"]["view"]["head"]
    assert (head["agent"], head["prompt"], head["status"]) == ("guide", "Hello there", "running")
    await run
    assert card.get_state()["snapshot"]["view"]["head"]["status"] == "completed"
    card.detach()
    card.close()


async def test_opening_a_comm_sends_the_prompt(monkeypatch):
    """The state that travels with the comm's opening is the same."""
    sent = []

    def opened(self):
        sent.append(self.get_state()["snapshot"]["view"]["head"]["prompt"])

    monkeypatch.setattr(RunCard, "open", opened)
    run = nb.Agent(nb.ScriptedModel(["hi"])).run("Hello there")
    RunCard(run).detach()
    await run
    assert sent == ["Hello there"]


async def test_what_to_do_when_the_kernel_is_gone_depends_on_the_store(tmp_path):
    """A run in memory is gone with it; one on disk is opened again."""
    agent = nb.Agent(nb.ScriptedModel(["hi", "hi"]))
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for kept, said in [(None, "Run the cell again"), (store, "nb.open_run(")]:
            run = agent.run("Hello", store=kept)
            card = RunCard(run)
            assert said in card.get_state()["snapshot"]["texts"]["gone"]
            await run
            card.detach()
            card.close()
