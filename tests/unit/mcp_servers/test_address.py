"""The address of a server from each kind of argument, and the credentials in it."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.mcp_servers.address import Command, Url, address_of, remove_secrets

URL = "https://mcp.example/mcp"
TOKEN = "t0ken-4711"
LONG = f"{TOKEN}-of-a-segment"
SERVERS = {"a": {"command": "run-a"}, "b": {"url": URL, "headers": {"X": "1"}}}


def found(given: Any, **more: Any) -> Any:
    """The address and its name in a config."""
    nothing = dict.fromkeys(("server", "env", "headers", "cwd", "auth"))
    return address_of(given, **{**nothing, **more})


@pytest.mark.parametrize(
    ("given", "more", "address", "label"),
    [
        ("npx -y @a/b --verbose", {}, Command(("npx", "-y", "@a/b", "--verbose"), {}), "b"),
        ("server 'two words'", {}, Command(("server", "two words"), {}), "server"),
        (["/bin/my-server", "x"], {}, Command(("/bin/my-server", "x"), {}), "my-server"),
        ([Path("python3.11"), "-m", "mine"], {}, Command(("python3.11", "-m", "mine"), {}), "mine"),
        ("uvx.exe run a=b mine", {}, Command(("uvx.exe", "run", "a=b", "mine"), {}), "mine"),
        ("docker run -i", {}, Command(("docker", "run", "-i"), {}), "docker"),
        ("x", {"env": {"A": "1"}, "cwd": Path("/w")}, Command(("x",), {"A": "1"}, "/w"), "x"),
        (
            {"command": "x", "args": ["a", 1], "env": {"A": "1", "B": "1"}, "cwd": "/v"},
            {"env": {"A": "2"}},
            Command(("x", "a", "1"), {"A": "2", "B": "1"}, "/v"),
            "x",
        ),
        (URL, {"auth": False}, Url(URL, {}), "mcp.example"),
        (URL, {}, Url(URL, {}, nb.McpSignIn()), "mcp.example"),
        ("http://u:p@h:80/x", {"auth": False}, Url("http://u:p@h:80/x", {}), "h:80"),
        (URL, {"auth": SecretStr("t")}, Url(URL, {"Authorization": "Bearer t"}), "mcp.example"),
        (URL, {"headers": {"authorization": "b"}}, Url(URL, {"authorization": "b"}), "mcp.example"),
        (
            {"type": "http", "url": URL, "headers": {"X": "1"}},
            {"headers": {"X": "2"}, "auth": "t"},
            Url(URL, {"X": "2", "Authorization": "Bearer t"}),
            "mcp.example",
        ),
    ],
)
def test_each_kind_of_argument_is_an_address(
    given: Any, more: dict[str, Any], address: Any, label: str
) -> None:
    """Arguments of the call override those of a config; a URL signs in unless it is told otherwise."""
    assert found(given, **more) == (address, None)
    assert address.label == label
    assert TOKEN not in repr(address)


def test_a_server_of_a_config_is_selected_by_its_name(tmp_path: Path) -> None:
    """A file is read; a config of one server needs no name."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": SERVERS}), encoding="utf-8")
    assert found(file, server="a") == (Command(("run-a",), {}), "a")
    assert found({"servers": SERVERS}, server="b", auth=False) == (Url(URL, {"X": "1"}), "b")
    assert found({"mcpServers": {"a": SERVERS["a"]}})[1] == "a"


@pytest.mark.parametrize(
    ("given", "more", "says"),
    [
        ("", {}, "empty command"),
        ([], {}, "empty command"),
        (3, {}, "got a value of type int"),
        (b"x", {}, "got a value of type bytes"),
        ("mcp.json", {}, r"nb.mcp\(Path\('mcp.json'\)\)"),
        ("localhost:8000/mcp", {}, r"nb.mcp\('http://localhost:8000/mcp'\)"),
        (Path("/nowhere.json"), {}, "config '/nowhere.json' cannot be read"),
        ({"type": "sse", "url": URL}, {}, "old transport 'sse'"),
        ({"url": "ftp://x"}, {}, "must begin with http"),
        ({"command": ""}, {}, "needs a command, with args and env, or a url"),
        ({"command": "x", "args": "a b"}, {}, "args of a config must be a list"),
        ({"command": "x", "env": {"A": 1}}, {}, "env must be a dict of strings"),
        ({"command": "x"}, {"server": "a"}, "this config has none"),
        ({"mcpServers": SERVERS}, {}, "Available: 'a', 'b'"),
        ({"mcpServers": {"weather": {}, "b": {}}}, {"server": "wether"}, "Did you mean 'weather'"),
        ({"mcpServers": {}}, {}, "Available: none"),
        ("x", {"server": "a"}, "no config was given"),
        ("x", {"headers": {}}, "headers= is for a URL"),
        (URL, {"env": {}}, "env= and cwd= are for a server"),
        (URL, {"cwd": "/"}, "env= and cwd= are for a server"),
        (URL, {"headers": {"A": 1}}, "headers must be a dict of strings"),
    ],
)
def test_an_invalid_address_is_refused_with_what_to_pass(
    given: Any, more: dict[str, Any], says: str
) -> None:
    """Before anything is started or requested."""
    with pytest.raises(UsageError, match=says):
        found(given, **more)


def test_c383_client_settings_that_do_not_fit_are_refused() -> None:
    """A document of a client is a page under https."""
    for url in ("http://nb.example/c", "https://nb.example", "https://nb.example/"):
        with pytest.raises(UsageError, match="must be an https URL with a path"):
            nb.McpSignIn(client_metadata_url=url)
    assert nb.McpSignIn(client_id="a", client_secret=SecretStr("s")).secret == "s"
    assert nb.McpSignIn(client_metadata_url="https://nb.example/c").secret is None


@pytest.mark.parametrize(
    "address",
    [
        Command(("x",), {"ANY": TOKEN}),
        Command(("x", "--api-key", TOKEN), {}),
        Command(("x", f"--token={TOKEN}"), {}),
        Command(("x", "-e", f"MY_PASSWORD={TOKEN}"), {}),
        Command(("x", "--header", f"X-Any: {TOKEN}"), {}),
        Command(("x", "--header", f"X-Any:{TOKEN}"), {}),
        Command(("x", f"http://u:{TOKEN}@h/"), {}),
        Url(URL, {"X": TOKEN}),
        Url(URL, {"X": f"Any {TOKEN}"}),
        Url(f"{URL}?any={TOKEN}", {}),
        Url(f"https://{TOKEN}@mcp.example/", {}),
        Url(f"https://u:{TOKEN}@mcp.example/", {}),
        Url(f"https://mcp.example/{LONG}", {}),
        Url(URL, {}, nb.McpSignIn(client_id="app", client_secret=TOKEN)),
    ],
    ids=repr,
)
def test_no_text_has_a_credential_of_an_address(address: Any) -> None:
    """Wherever the argument has it, in plain text or in Base64."""
    secret = LONG if LONG in str(tuple(address)) else TOKEN
    basic = b64encode(f"app:{secret}".encode()).decode()
    public = remove_secrets(f"got {secret}, Basic {basic}, and a word", address.secrets)
    assert TOKEN not in public
    assert basic[:9] not in public
    assert public.startswith("got •••")
    assert public.endswith(", and a word")
    assert TOKEN not in repr(address)


def test_ordinary_words_of_an_address_are_not_removed() -> None:
    """Short values, and those of options whose names do not sound secret."""
    secrets = Command(("x", "--level", "warning", "--token", "abc", "plain"), {}).secrets
    assert remove_secrets("warning: abc plain", secrets) == "warning: abc plain"
    assert not any(Url("https://mcp.example/v1/mcp", {}).secrets)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=60),
    st.binary(max_size=9),
    st.binary(max_size=9),
    st.sampled_from([b64encode, urlsafe_b64encode]),
    st.booleans(),
)
def test_c380_a_credential_is_removed_from_any_base64_around_it(
    secret: str, before: bytes, after: bytes, encode: Any, is_quoted: bool
) -> None:
    """In either alphabet, at any place, also as the library writes it before: percent-encoded."""
    inner = (quote(secret, safe="") if is_quoted else secret).encode()
    sent = encode(before + inner + after).decode()
    assert remove_secrets(f"« {sent} »", [secret]) == "« ••• »"
