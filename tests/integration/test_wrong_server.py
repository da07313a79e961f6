"""A web page instead of a model server: the error must say so."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import nbagent as nb


class WebPage(BaseHTTPRequestHandler):
    """A server that answers each request with a web page, like a web interface next to its API."""

    asked = 0

    def do_POST(self) -> None:
        """Send the page."""
        type(self).asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        page = b"<!doctype html><title>Chat</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize("live", [True, False])
async def test_a_web_page_in_place_of_an_answer_is_reported_as_a_wrong_base_url(live):
    """The answer is not reported as interrupted, and the request is not repeated."""
    WebPage.asked = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), WebPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        async with nb.OpenAIModel("m", base_url=url, api_key="k") as model:
            agent = nb.Agent(model)
            with pytest.raises(
                nb.errors.ModelError, match=r"a web page .*Does it end in /v1\?"
            ) as raised:
                await (agent.run("go") if live else agent.generate("go"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert url in str(raised.value)
    assert WebPage.asked == 1
