"""The token file of a server: one record of one authorization server, which processes share."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

import nbagent as nb
from nbagent.mcp_servers import tokens as module
from nbagent.mcp_servers.tokens import Tokens, data_folder

URL = "https://mcp.example/mcp"
BACK = "http://127.0.0.1:3118/callback"


def metadata(host: str, **more: Any) -> OAuthMetadata:
    places = {f"{name}_endpoint": f"https://{host}/{name}" for name in ("authorization", "token")}
    return OAuthMetadata.model_validate({"issuer": f"https://{host}", **places, **more})


def made(folder: Path, url: str = URL, **given: Any) -> Tokens:
    """The tokens of a server, with a provider that has found the authorization server ``a.example``."""
    tokens = Tokens(url, nb.McpSignIn(folder=folder, **given))
    tokens.reload()
    about = OAuthClientMetadata(redirect_uris=[AnyUrl(tokens.redirect_uri)])
    tokens.context = OAuthContext(url, about, tokens, None, None)
    tokens.load()
    tokens.context.oauth_metadata = metadata("a.example")
    return tokens


def client(**more: Any) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(client_id="id-1", client_secret="its-secret", **more)


async def signed_in(tokens: Tokens, name: str = "1", end: float | None = None) -> None:
    """Store a registered client and its tokens, as the provider does."""
    context = tokens.context
    assert context is not None
    context.client_info, context.token_expiry_time = client(), end
    await tokens.set_client_info(context.client_info)
    await tokens.set_tokens(
        OAuthToken(access_token=f"access-{name}", refresh_token=f"refresh-{name}")
    )


async def test_c376_a_later_process_has_the_whole_record(tmp_path: Path) -> None:
    """The file and its new folder are private, and the record names its issuer."""
    first, folder = made(tmp_path / "kept"), tmp_path / "kept"
    assert not folder.exists()
    await signed_in(first, end=1e12)
    written = first.record
    first.reload()
    assert first.record is written
    (file,) = folder.iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, file)] == [0o700, 0o600]
    later = made(folder)
    assert later.record == first.record
    assert later.issuer == "https://a.example"
    assert later.redirect_uri == first.redirect_uri
    assert (later.token, later.must_renew) == ("access-1", False)
    found = await later.get_client_info()
    assert found is not None
    assert (found.client_id, found.issuer) == ("id-1", "https://a.example")
    assert {"access-1", "refresh-1", "its-secret"} <= {*later.secrets}


async def test_c379_a_change_by_another_process_is_read_and_earlier_secrets_stay_hidden(
    tmp_path: Path,
) -> None:
    """Also the deletion of the file; a file that did not change is not read again."""
    first, second = made(tmp_path / "kept"), made(tmp_path / "kept")
    await signed_in(first)
    second.reload()
    assert second.token == "access-1"
    await signed_in(second, "2")
    first.reload()
    assert first.token == "access-2"
    assert {"access-1", "refresh-1", "access-2", "refresh-2"} <= {*first.secrets}
    kept = first.record
    first.reload()
    assert first.record is kept
    second.path.unlink()
    first.reload()
    assert first.token is None


@pytest.mark.parametrize(
    ("end", "refresh", "must"),
    [(1.0, "r", True), (1.0, None, False), (1e12, "r", False), (None, "r", False)],
)
async def test_c379_a_token_is_renewed_before_its_use_only_if_it_must_and_can_be(
    end: float | None, refresh: str | None, must: bool, tmp_path: Path
) -> None:
    """It has expired, and there is a refresh token; without an expiry time, the server decides."""
    tokens = made(tmp_path / "kept")
    await signed_in(tokens, end=end)
    assert tokens.context is not None
    tokens.context.token_expiry_time = end
    await tokens.set_tokens(OAuthToken(access_token="a", refresh_token=refresh))
    assert tokens.must_renew is must


async def test_c379_a_client_that_is_registered_for_another_redirect_is_not_used(
    tmp_path: Path,
) -> None:
    """Without an address in the settings, the registered one is used; with the same one, the client is."""
    folder = tmp_path / "kept"
    await signed_in(made(folder, redirect_uri=BACK), end=1.0)
    for given, is_used in (
        ({}, True),
        ({"redirect_uri": BACK}, True),
        ({"redirect_uri": f"{BACK}2"}, False),
    ):
        tokens = made(folder, **given)
        assert (await tokens.get_client_info() is not None) is is_used
        assert tokens.must_renew is is_used
        assert tokens.context is not None
        assert (tokens.context.client_info is not None) is is_used
        assert tokens.redirect_uri == given.get("redirect_uri", BACK)
        assert [*map(str, tokens.context.client_metadata.redirect_uris or ())] == [
            tokens.redirect_uri
        ]


async def test_c379_a_damaged_or_mixed_file_is_not_used(tmp_path: Path) -> None:
    """A mixed file has a client of one authorization server beside the tokens of another one."""
    first = made(tmp_path / "kept")
    await signed_in(first)
    whole = json.loads(first.path.read_text())
    mixed = {**whole, "client": {**whole["client"], "issuer": "https://b.example"}}
    elsewhere = {**whole, "server": {**whole["server"], "issuer": "https://b.example"}}
    without = {key: value for key, value in whole.items() if key != "server"}
    for text in ("", "{", "[]", *map(json.dumps, (mixed, elsewhere, without))):
        first.path.write_text(text)
        assert made(tmp_path / "kept").token is None
    slash = {**whole, "client": {**whole["client"], "issuer": "https://a.example/"}}
    first.path.write_text(json.dumps(slash))
    assert made(tmp_path / "kept").token == "access-1"


async def test_c380_a_new_client_replaces_no_tokens_until_it_has_its_own(tmp_path: Path) -> None:
    """A registration alone is stored, so that the next sign-in can use it."""
    tokens = made(tmp_path / "kept")
    assert tokens.context is not None
    tokens.context.client_info = client()
    await tokens.set_client_info(client())
    assert made(tmp_path / "kept").record.client == client(issuer="https://a.example")
    await signed_in(tokens)
    tokens.context.oauth_metadata = metadata("b.example")
    await tokens.set_client_info(
        OAuthClientInformationFull(client_id="b", client_secret="new-secret")
    )
    assert made(tmp_path / "kept").record == tokens.record
    assert tokens.issuer == "https://a.example"
    assert "new-secret" in tokens.secrets


async def test_c380_the_provider_gets_nothing_of_an_unfinished_sign_in(tmp_path: Path) -> None:
    """All that the provider found is replaced by the record."""
    tokens = made(tmp_path / "kept")
    await signed_in(tokens, end=7.0)
    context = tokens.context
    assert context is not None
    context.oauth_metadata, context.auth_server_url = metadata("b.example"), "https://b.example"
    context.client_info, context.current_tokens = client(issuer="https://b.example"), None
    context.token_expiry_time = 1e12
    tokens.load()
    assert context.oauth_metadata == metadata("a.example")
    assert context.auth_server_url == "https://a.example"
    assert context.client_info == tokens.record.client
    assert (context.current_tokens, context.token_expiry_time) == (tokens.record.tokens, 7.0)


@pytest.mark.parametrize(
    ("offered", "secret", "method"),
    [
        (None, "s", "client_secret_basic"),
        (["client_secret_post"], "s", "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], "s", "client_secret_basic"),
        (None, None, "none"),
    ],
)
async def test_c383_a_client_of_the_settings_is_not_stored_and_bound_by_its_first_tokens(
    offered: list[str] | None, secret: str | None, method: str, tmp_path: Path
) -> None:
    """Its secret is sent as the authorization server offers it, also by a later process."""
    given = {"client_id": "app", "client_secret": secret}
    tokens = made(tmp_path / "kept", **given)
    found = await tokens.get_client_info()
    assert found is not None
    assert found.issuer is None
    assert tokens.context is not None
    tokens.context.oauth_metadata = metadata(
        "a.example", token_endpoint_auth_methods_supported=offered
    )
    await tokens.set_tokens(OAuthToken(access_token="access-1"))
    assert "client" not in json.loads(tokens.path.read_text())
    later = await made(tmp_path / "kept", **given).get_client_info()
    assert later is not None
    assert (
        later.client_id,
        later.client_secret,
        later.issuer,
        later.token_endpoint_auth_method,
    ) == (
        *("app", secret, "https://a.example"),
        method,
    )


async def test_c376_a_server_without_metadata_is_its_own_issuer(tmp_path: Path) -> None:
    """As in the first version of the protocol; letters of a host may be written large."""
    url = "https://MCP.example:443/mcp"
    tokens = made(tmp_path / "kept", url)
    assert tokens.context is not None
    tokens.context.oauth_metadata = None
    await signed_in(tokens)
    assert tokens.record.client == client(issuer="https://mcp.example/")
    tokens.load()
    assert tokens.context.auth_server_url is None
    assert made(tmp_path / "kept", url).token == "access-1"


def test_c376_each_server_and_client_has_its_own_file(tmp_path: Path) -> None:
    """The name has the host, without characters of other systems' paths."""
    given: list[tuple[str, dict[str, Any]]] = [
        (URL, {}),
        (f"{URL}2", {}),
        (URL, {"client_id": "app"}),
        (URL, {"client_metadata_url": "https://nb.example/c"}),
        ("http://[::1]:8000/mcp", {}),
    ]
    paths = [made(tmp_path, url, **more).path for url, more in given]
    assert len({*paths}) == len(paths)
    assert {path.parent for path in paths} == {tmp_path}
    assert paths[0].name.startswith("mcp.example-")
    assert paths[-1].name.startswith("__1-")
    assert made(tmp_path).path == paths[0]


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {"NBAGENT_DATA": "~/own"}, "own"),
        ("linux", {"XDG_DATA_HOME": "/x"}, "/x/nbagent"),
        ("linux", {}, ".local/share/nbagent"),
        ("darwin", {"XDG_DATA_HOME": "/x"}, "Library/Application Support/nbagent"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/nbagent"),
        ("win32", {}, "AppData/Local/nbagent"),
    ],
)
def test_c376_tokens_are_in_the_users_data_folder(
    platform: str,
    variables: dict[str, str],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the system's place for it, unless ``NBAGENT_DATA`` names another."""
    for name in ("NBAGENT_DATA", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module.sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert data_folder() == tmp_path / place
    assert Tokens(URL, nb.McpSignIn()).path.parent == tmp_path / place / "mcp"


@pytest.mark.skipif(os.name == "nt", reason="Windows has access lists")
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770, 0o702, 0o777])
async def test_c380_a_folder_that_others_can_write_to_gets_no_tokens(
    mode: int, tmp_path: Path
) -> None:
    """Who writes there could exchange the record."""
    folder = tmp_path / "kept"
    folder.mkdir()
    tokens = made(folder)
    folder.chmod(mode)
    if mode & 0o022:
        with pytest.raises(OSError, match="other users can write to this folder"):
            await signed_in(tokens)
        with pytest.raises(OSError, match="other users can write to this folder"):
            tokens.reload()
        assert [*folder.iterdir()] == []
    else:
        await signed_in(tokens)
        assert made(folder).token == "access-1"
