"""Tests cards in JupyterLite's kernel, with a simulated page: top-level code, which Pyodide awaits."""

import asyncio
import importlib
import json
import sys

import pyodide_kernel
from js import JSON, BroadcastChannel, console
from pyodide.ffi import to_js

sent = []
"""The messages from the kernel to its page, as JSON."""
shell = pyodide_kernel.ipython_shell
kernel = pyodide_kernel.kernel_instance
kernel._parent_header = {"header": {"msg_id": "1", "msg_type": "execute_request"}, "metadata": {}}
shell.send_comm = lambda kind, content, *_: sent.append((kind, JSON.stringify(to_js(content))))

import nbagent as nb  # noqa: E402
from nbagent.notebook.render import sanitize  # noqa: E402

call = nb.ScriptedModel.call
agent = nb.Agent(nb.ScriptedModel([call("pay", amount=5), call("pay", amount=6), "Paid."]))


@agent.tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def until(holds):
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"it never came: {sent[-3:]}")


def messages_of_kind(kind):
    """The card's messages of a kind."""
    parsed = [json.loads(text)["data"] for _, text in sent]
    found = [data["content"] for data in parsed if data.get("method") == "custom"]
    return [content for content in found if content["type"] == kind]


run = agent.run("go")
run.view()
opened = [json.loads(text) for kind, text in sent if kind == "comm_open"]
(card,) = [one for one in opened if "channel" in one["data"]["state"]]
name = card["data"]["state"]["channel"]
assert len(name) > 30, name
page = BroadcastChannel.new(name)
page.postMessage('{"type": "hello", "keeps": false, "again": false}')
await until(lambda: messages_of_kind("snapshot"))
await until(lambda: run.interrupts)
await until(lambda: '"expires_at":null' in sent[-1][1])  # null, not omitted

# other messages on the channel change nothing
(asked,) = run.interrupts
answer = {"type": "answer", "interrupt": asked.id, "submission": "s", "action": "approve"}
for forged in (
    7,
    "no JSON",
    "[" * 100_000,
    "x" * (11 * 2**20),
    json.dumps(answer | {"action": "run"}),
    json.dumps(answer | {"interrupt": "another"}),
    json.dumps(answer | {"more": 1}),
    json.dumps([answer]),
):
    page.postMessage(forged)
page.postMessage(to_js(answer))
await asyncio.sleep(0.3)
assert run.interrupts[0].id == asked.id, run
assert "pay" in run.interrupts[0].tool_name

# an answer by the channel and one by the comm, with null as Pyodide passes it
page.postMessage(json.dumps(answer | {"reason": None, "remember": None}))
await until(lambda: run.interrupts and run.interrupts[0].id != asked.id)
again = answer | {"interrupt": run.interrupts[0].id, "reason": None, "remember": None}
message = {"comm_id": card["comm_id"], "data": {"method": "custom", "content": again}}
parsed = JSON.parse(json.dumps({"content": message, "buffers": []})).to_py()
kernel.comm_manager.comm_msg(None, None, parsed)
assert (await run).text == "Paid."

# closing the card closes its channel
(ours,) = [one for one in kernel.comm_manager.comms.values() if getattr(one, "_channel", None)]
ours.close()
assert ours._channel is None
closed = len(sent)
page.postMessage('{"type": "hello", "keeps": false, "again": false}')
await asyncio.sleep(0.2)
assert len(sent) == closed, sent[closed:]
page.close()

# without nh3, only text is shown
assert sanitize.clean("<b>x</b>") == "<b>x</b>"
sys.modules["nh3"] = None
alone = importlib.reload(sanitize)
hostile = "<b title='>'>a &amp; &lt;c&gt;</b><img src=x onerror=alert(1)><svg><script>1</script"
for clean in (alone.clean, alone.clean_values, alone.clean_formula):
    assert "<" not in clean(hostile), clean(hostile)
    assert "a &amp; &lt;c&gt;" in clean(hostile), clean(hostile)
assert alone.clean("<p>a</p><p>b</p>").split() == ["a", "b"]
console.log("whole")  # the kernel has taken sys.stdout
