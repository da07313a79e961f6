"""A scripted server in a process of its own, for benches: Chat Completions or Responses.

    python -m tests.bench.serve TURNS TOKENS CALLS [responses]

The server asks for CALLS calls of the first tool in each of TURNS turns, then sends TOKENS words. It
writes its base URL to stdout and serves until stdin closes.
"""

from __future__ import annotations

import sys

from tests.integration.chat_server import Body, ChatServer, Reply
from tests.integration.responses_server import ResponsesServer, looping


def main() -> None:
    """Serve."""
    turns, tokens, calls = map(int, sys.argv[1:4])
    if sys.argv[4:] == ["responses"]:
        script = looping(turns, "word " * tokens, tokens, calls)
        return serve(ResponsesServer(script, reasons=False))

    def reply(body: Body) -> Reply:
        done = 0
        for message in reversed(body["messages"]):
            if message["role"] == "user":
                break
            done += message["role"] == "assistant"
        if done >= turns:
            return Reply("word " * tokens, pieces=tokens)
        name = body["tools"][0]["function"]["name"]
        return Reply(calls=[(name, {"n": number}) for number in range(calls)])

    return serve(ChatServer(reply))


def serve(made: ChatServer) -> None:
    """Serve until stdin closes."""
    with made as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
