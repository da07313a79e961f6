"""LiteLLM for tests: on the path of this process, and its real proxy in another process.

use_litellm()                                   # then ``import litellm`` works here
with Proxy(server.url) as proxy:                # in front of a ChatServer
    model = OpenAIModel("served", base_url=proxy.url, api_key=proxy.key)
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

import pytest

from nbagent.models.litellm import silence
from tests.integration.install_litellm import folder, installed

PATIENCE = 180
"""Seconds to wait for the proxy, which takes 10 s to load."""
MISSING = (
    "LiteLLM is not installed beside the tests; "
    "to run these: python tests/integration/install_litellm.py"
)


def use_litellm() -> None:
    """Append LiteLLM to the path; skips the test if it is not installed.

    In CI, the test fails instead, because LiteLLM must be tested.
    """
    if installed() is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    if str(folder()) not in sys.path:
        sys.path.append(str(folder()))
    silence()  # the model does this once, but pytest resets it for each test


PASSED = ("PATH", "HOME", "TMPDIR", "PYTHONPYCACHEPREFIX")
"""Variables of the environment that the proxy gets."""


class Proxy:
    """LiteLLM's proxy over HTTP. Its model ``served`` is at a server; ``mock`` is LiteLLM's own mock.

    Args:
        upstream: the base URL of the server behind ``served``.
        folder_: the folder for the proxy's settings and log.
    """

    key = "sk-master-key-of-the-proxy-0123456789"

    def __init__(self, upstream: str, folder_: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        """The ``base_url`` of a model."""
        self._log = folder_ / "proxy.log"
        self._settings = folder_ / "proxy.json"
        served = {"model": "openai/served", "api_base": upstream, "api_key": "k", "max_retries": 0}
        mock = {"model": "openai/gpt-4o-mini", "api_key": "k", "mock_response": "I am a mock."}
        self._settings.write_text(
            json.dumps(
                {
                    "model_list": [
                        {"model_name": "served", "litellm_params": served},
                        {"model_name": "mock", "litellm_params": mock},
                    ],
                    "router_settings": {"num_retries": 0, "disable_cooldowns": True},
                    "litellm_settings": {"num_retries": 0, "telemetry": False},
                }
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        use_litellm()
        told = {
            **{name: os.environ[name] for name in PASSED if name in os.environ},
            "PYTHONPATH": str(folder()),
            "LITELLM_MASTER_KEY": self.key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        run = "from litellm import run_server; run_server()"
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--config", str(self._settings)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", run, *where, "--telemetry", "False"],
                env=told,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            end = time.monotonic() + PATIENCE
            while not self._answers():
                assert time.monotonic() < end, self._log.read_text(errors="replace")[-2000:]
                time.sleep(0.1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(f"{self.url}/health/liveliness", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False
