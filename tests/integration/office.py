"""The session that ``notebooks/07_testing.ipynb`` replays: the server's replies and the person's answers.

``python -m tests.integration.office`` records the notebook again, over HTTP from a server on loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.chat_server import ChatServer, Reply

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
KEY = "sk-office-0123456789abcdefghij"
SCRIPT = (
    Reply(reasoning="First, what is there?", calls=[("stock", {})]),
    Reply("Coffee runs low. ", [("ask_delivery", {})]),
    Reply(calls=[("order", {"item": "coffee", "boxes": 8, "day": "Thursday"})]),
    Reply("There were two boxes of coffee, so I ordered eight more, for Thursday after ten."),
)
ANSWERS = {"ask_delivery": {"day": "Thursday", "note": "after ten"}, "order": True}


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """The environment variables with which the notebook's model uses the server."""
    with ChatServer(SCRIPT) as server:
        yield {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}


def nbagent(
    *arguments: object, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command ``nbagent``."""
    command = [sys.executable, "-m", "nbagent", *map(str, arguments)]
    return subprocess.run(
        command,
        env=env or dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def record(notebook: Path) -> subprocess.CompletedProcess[str]:
    """Record the notebook in place."""
    with served() as environment, tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.json"
        answers.write_text(json.dumps(ANSWERS))
        return nbagent("record", notebook, "--answers", answers, env=environment)


if __name__ == "__main__":
    done = record(NOTEBOOKS / "07_testing.ipynb")
    print(done.stdout, done.stderr)
