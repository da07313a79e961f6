"""``nb.notify`` with real receivers: a webhook and a mail server through Apprise, and a script that ends."""

from __future__ import annotations

import asyncio
import email
import email.policy
import html
import json
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

import nbagent as nb
from nbagent.listeners import notify
from tests.until import until

call = nb.ScriptedModel.call
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # of Apprise
HOSTILE = "Pay?\r\nBcc: all@example.org\r\n\r\n<script>x</script> & \u202eevil"
SHOWN = "Pay? Bcc: all@example.org <script>x</script> & ⟨U+202E⟩evil"


class Webhook(ThreadingHTTPServer):
    """A server that keeps the JSON of each request; with ``status``, it refuses them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Received)
        self.messages: list[Any] = []
        self.status = 200
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Received(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        server.messages.append(json.loads(body))
        self.send_response(server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:  # as the base class would print it
        pass


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook on loopback; messages are sent without a delay."""
    monkeypatch.setattr(notify, "GATHER", 0.0)
    server = Webhook()
    yield server
    server.shutdown()
    server.server_close()


async def asking(name: str = "banker") -> nb.Run:
    """A run with a hostile question."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "done"]), name=name)

    @agent.tool
    async def ask(ctx: nb.ToolContext) -> str:
        """Ask."""
        return await ctx.ask(HOSTILE)

    run = agent.run("go", attended=True, show=False)
    await until(lambda: run.interrupts)
    return run


async def test_c726_a_webhook_and_a_mail_server_get_a_question_through_apprise(
    webhook: Webhook,
) -> None:
    """Text stays text: HTML is escaped in the mail, no header is added, and a hidden character has a sign."""
    mails: list[Any] = []

    class Inbox:
        async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
            mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
            return "250 OK"

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(Inbox()), "127.0.0.1", 0)
    mail_port = server.sockets[0].getsockname()[1]
    posted = f"json://127.0.0.1:{webhook.server_port}/hook"
    mailed = f"mailto://127.0.0.1:{mail_port}?from=agent@example.org&to=ann@example.org&format=html"
    try:
        with nb.notify(posted) as one, nb.notify(mailed):
            assert repr(one) == "<Notifier to json://…>"
            run = await asking(name="banker\r\nBcc: eve@example.org")
            await until(lambda: webhook.messages and mails)
            await run.cancel()
    finally:
        server.close()
    title = "banker Bcc: eve@example.org is waiting for your answer"
    assert webhook.messages[0]["title"] == title
    assert f'ask asks "{SHOWN}"\n' in webhook.messages[0]["message"]
    (mail,) = mails
    assert mail["subject"] == title
    assert (mail["to"], mail["bcc"], mail["cc"]) == ("ann@example.org", None, None)
    body = mail.get_body(("html",))
    assert "<script>" not in body.get_content()
    assert SHOWN in html.unescape(body.get_content()).replace("\xa0", " ")


async def test_c724_an_address_that_refuses_is_named_without_its_credentials(
    webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning of nbagent, none of Apprise; the run continues, and Apprise's own log lines come back."""
    webhook.status = 500

    def has(count: int) -> bool:
        return len(webhook.messages) >= count

    address = f"json://ann:T0KEN@127.0.0.1:{webhook.server_port}/S3CRET"
    with nb.notify(address):
        for count in (1, 2):
            run = await asking()
            await until(partial(has, count))
            run.respond(run.interrupts[0], "yes")
            assert (await run).text == "done"
        await until(lambda: "nb.notify" in caplog.text)
    told = {record.getMessage() for record in caplog.records}
    assert {text for text in told if text.startswith("nb.notify")} == {
        "nb.notify could not reach json://…: Apprise could not send it"
    }
    logging.getLogger("apprise").warning("something else")
    assert "something else" in caplog.text


def test_c728_the_end_of_a_program_sends_what_is_left(webhook: Webhook, tmp_path: Path) -> None:
    """A script whose run needs a person ends at once; the message says how to answer in a shell."""
    script = f"""
        import asyncio
        import nbagent as nb

        async def slowly(message):
            await asyncio.get_running_loop().run_in_executor(None, print, message)

        agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay", amount=7), "done"]), name="banker")

        @agent.tool(approval=True)
        def pay(amount: int) -> str:
            "Pay."

        nb.notify("json://127.0.0.1:{webhook.server_port}/hook")
        nb.notify(slowly)
        agent.run_sync("go", id="r1", store="runs.db")
        """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "HumanInputRequired" in ended.stderr
    for text in (webhook.messages[0]["message"], ended.stdout):
        assert f"nbagent answer r1 --store {tmp_path / 'runs.db'}" in text
        assert "banker: pay asks for approval" in text
        assert "7" not in text.replace(str(tmp_path), "")
