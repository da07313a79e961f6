"""A real language model on loopback: SmolLM2-135M in llama.cpp's server, in a process of its own.

with RealModel() as served:
    model = served.model(max_tokens=24)

Its answers make no sense, but its streams, cut-offs, limits and grammars are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any, Self

import pytest

import nbagent as nb
from tests.integration.install_real_model import folder, is_unavailable, weights

MISSING = (
    "The real model is not installed beside the tests; "
    "to run these: python tests/integration/install_real_model.py"
)
SLOTS, CONTEXT = 4, 512
"""The requests that are answered at once, and the tokens of each conversation."""
SERVE = """
import os, sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, slots, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_parallel, params.n_ctx, params.endpoint_slots = slots, slots * context, True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more of them wait for each other beside other tests
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()  # until the tests end, however they end
os._exit(0)
"""


class RealModel:
    """A server of the model, which ends with this process."""

    def __enter__(self) -> Self:
        file = weights()
        if file is None:
            if is_unavailable():
                pytest.skip("The real model cannot be installed here")
            if os.environ.get("CI", "").lower() == "true":
                pytest.fail(MISSING)
            pytest.skip(MISSING)
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(file), str(SLOTS), str(CONTEXT)],
            env={**os.environ, "PYTHONPATH": str(folder())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = f"{self._process.stdout.readline().strip()}/v1"
        """The ``base_url`` of a model."""
        assert self.url.startswith("http"), f"The server ended with {self._process.wait(60)}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.communicate("", timeout=60)

    def model(self, max_tokens: int, **options: Any) -> nb.OpenAIModel:
        """The model, whose answers are nearly the same each time."""
        extra = {"max_tokens": max_tokens, "seed": 1, "temperature": 0}
        return nb.OpenAIModel("smollm2", base_url=self.url, extra=extra, **options)

    def busy(self) -> int:
        """The number of slots that are computing an answer."""
        with urllib.request.urlopen(f"{self.url.removesuffix('/v1')}/slots", timeout=60) as answer:
            return sum(slot["is_processing"] for slot in json.load(answer))
