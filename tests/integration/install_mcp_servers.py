"""Install the published MCP servers that the tests talk to, each in a folder of its own.

Usage: ``python tests/integration/install_mcp_servers.py``, with npm on the path. The folder is
``NBAGENT_MCP_SERVERS``, else ``nbagent-mcp-servers`` in the user's cache folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFORMANCE = "@modelcontextprotocol/conformance"
SUITES = {"0.1.16": f"{CONFORMANCE}@0.1.16", "0.2.0-alpha.12": f"{CONFORMANCE}@0.2.0-alpha.12"}
"""Releases of the protocol's own suite: the latest, and the one that knows protocol 2026-07-28."""
NODE = "node@22"
"""What runs the suite, which older ones do not."""
EVERYTHING = "@modelcontextprotocol/server-everything"
TIME = "mcp-server-time"


def folder() -> Path:
    """Where the servers are."""
    if chosen := os.environ.get("NBAGENT_MCP_SERVERS"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-mcp-servers"


def everything() -> Path:
    """The reference server's program."""
    return folder() / "everything" / "node_modules" / ".bin" / "mcp-server-everything"


def clock() -> Path:
    """The program of the server that tells the time, from PyPI."""
    return folder() / "time" / "bin" / TIME


def suite(version: str) -> list[str]:
    """The command that runs the protocol's conformance suite."""
    modules = folder() / f"conformance-{version}" / "node_modules"
    return [
        str(modules / "node" / "bin" / "node"),
        str(modules / CONFORMANCE / "dist" / "index.js"),
    ]


def install() -> None:
    """Install what is not there."""
    if not everything().exists():
        target = ["--prefix", str(folder() / "everything"), "--no-audit", "--no-fund"]
        subprocess.run(["npm", "install", *target, EVERYTHING], check=True)
    for version, package in SUITES.items():
        if not Path(suite(version)[1]).exists():
            target = [
                "--prefix",
                str(folder() / f"conformance-{version}"),
                "--no-audit",
                "--no-fund",
            ]
            subprocess.run(["npm", "install", *target, package, NODE], check=True)
    if not clock().exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder() / "time")], check=True)
        pip = folder() / "time" / "bin" / "pip"
        subprocess.run([str(pip), "install", "--quiet", TIME], check=True)


if __name__ == "__main__":
    install()
    for program in (everything(), clock(), *(Path(suite(version)[1]) for version in SUITES)):
        print(f"{program.name}: {program if program.exists() else 'missing'}")
