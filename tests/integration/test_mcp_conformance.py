"""Runs MCP's conformance suite against an agent with ``nb.mcp``: one scenario of each kind.

With ``NBAGENT_CONFORMANCE=all`` in the environment, all scenarios for clients run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import install_mcp_servers

HERE = Path(__file__).parent
OAUTH = [
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
    "2025-03-26-oauth-metadata-backcompat",
    "2025-03-26-oauth-endpoint-fallback",
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "client-credentials-jwt",
    "client-credentials-basic",
]
NEWER = [
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
    "enterprise-managed-authorization",
]
PLAIN = ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"]
MODERN = [
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
]
WRONG = {
    (
        "0.1.16",
        "auth/2025-03-26-oauth-metadata-backcompat",
    ): "its server tells a wrong issuer, which 0.2 mended",
}
"""Scenarios of a release whose server breaks a rule that a client must enforce."""
ALL = [
    *[
        ("0.1.16", one)
        for one in (
            *PLAIN,
            *(f"auth/{one}" for one in OAUTH),
            "auth/cross-app-access-complete-flow",
        )
    ],
    *[
        ("0.2.0-alpha.12", one)
        for one in (*PLAIN, *MODERN, *(f"auth/{one}" for one in (*OAUTH, *NEWER)))
    ],
]
FEW = [
    ("0.2.0-alpha.12", one)
    for one in (
        *("tools_call", "elicitation-sep1034-client-defaults", "request-metadata"),
        *("auth/metadata-default", "auth/scope-step-up", "auth/pre-registration"),
        *("auth/client-credentials-basic", "auth/iss-wrong-issuer"),
    )
]
"""One of each kind, because all scenarios take minutes."""
SCENARIOS = ALL if os.environ.get("NBAGENT_CONFORMANCE") == "all" else FEW


@pytest.mark.variant
@pytest.mark.parametrize(("version", "scenario"), SCENARIOS)
def test_c383_the_conformance_suite_passes(version, scenario, tmp_path):
    """The list omits DPoP, workload identity (both extensions) and skills, which nbagent does not support."""
    node, suite = install_mcp_servers.suite(version)
    if not Path(suite).exists():
        assert os.environ.get("CI", "").lower() != "true", "the conformance suite must be installed"
        pytest.skip("python tests/integration/install_mcp_servers.py installs it")
    client = f"{sys.executable} {HERE / 'mcp_conformance_client.py'}"
    options = ["--command", client, "--scenario", scenario, "--timeout", "60000"]
    done = subprocess.run(
        [node, suite, "client", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    passes = done.returncode == 0 and "OVERALL: PASSED" in done.stdout + done.stderr
    assert passes is ((version, scenario) not in WRONG), done.stdout[-4000:] + done.stderr[-2000:]
