"""The record of a run's calls shows what happened."""

from __future__ import annotations

import nbagent as nb

call = nb.ScriptedModel.call


def transferring(**options) -> nb.Agent:
    """An agent whose model requests one transfer."""
    agent = nb.Agent(nb.ScriptedModel([call("transfer", to="ABC", amount=200), "Done."]), **options)

    @agent.tool(approval=True, editable=True)
    def transfer(to: str, amount: int) -> str:
        return f"sent {amount} to {to}"

    return agent


class Halved:
    """Middleware that halves the amount."""

    async def __call__(self, call, go_on):
        call.input = call.input.model_copy(update={"amount": call.input.amount // 2})
        return await go_on(call)


async def test_a_call_has_its_executed_and_its_proposed_input(tmp_path):
    """``input`` includes a person's edits and changes by middleware, in an opened run too."""
    edited = nb.Restart({"to": "ABC", "amount": 50})
    for options, answer, ran in (
        ({}, True, {"to": "ABC", "amount": 200}),
        ({}, edited, {"to": "ABC", "amount": 50}),
        ({}, False, {"to": "ABC", "amount": 200}),
        ({"middleware": [Halved()]}, True, {"to": "ABC", "amount": 100}),
    ):
        with nb.SQLiteStore(tmp_path / "runs.db") as store:
            agent = transferring(store=store, **options)
            run = agent.run("Send", answers={"transfer": answer})
            await run
            opened = await nb.open_run(run.id, agent=agent)
            for each in (run.calls, opened.calls, run.result.calls):
                (transfer,) = each["transfer"]
                assert transfer.input == ran
                assert transfer.proposed == {"to": "ABC", "amount": 200}
                if answer is not False:
                    assert f"sent {ran['amount']} to ABC" in transfer.output


async def test_a_waiting_call_has_the_input_that_it_would_run_with():
    """The input is the model's until somebody changes it."""
    run = transferring().run("Send")
    await run.settled()
    (transfer,) = run.calls["transfer"]
    assert transfer.input == transfer.proposed == {"to": "ABC", "amount": 200}
    assert not transfer.done


async def test_a_result_has_the_finish_reason_of_the_model():
    """``finish_reason`` is ``stop`` or the model's own word, as in a ``Response``."""
    agent = transferring()
    result = await agent.run("Send", answers={"transfer": True})
    assert result.finish_reason == "stop"
