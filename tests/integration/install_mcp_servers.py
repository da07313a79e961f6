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
SUITE = "0.2.0-alpha.12"
"""The release of the protocol's own suite that knows protocol 2026-07-28."""
SUITES = ["0.1.16", SUITE] if os.environ.get("NBAGENT_CONFORMANCE") == "all" else [SUITE]
"""The latest too, where all of it is played."""
NODE = "node@22"
"""What runs the suite, which older ones do not."""
EVERYTHING = "@modelcontextprotocol/server-everything"
FILES = "@modelcontextprotocol/server-filesystem"
TIME = "mcp-server-time"
FASTMCP = "fastmcp"


def folder() -> Path:
    """Where the servers are."""
    if chosen := os.environ.get("NBAGENT_MCP_SERVERS"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-mcp-servers"


def everything() -> Path:
    """The reference server's program."""
    return folder() / "everything" / "node_modules" / ".bin" / "mcp-server-everything"


def files() -> Path:
    """The program of the server that reads and writes files."""
    return folder() / "files" / "node_modules" / ".bin" / "mcp-server-filesystem"


def fastmcp() -> Path:
    """A Python that has FastMCP, which most servers are written with."""
    return folder() / "fastmcp" / "bin" / "python"


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
    packages = {"everything": (everything(), [EVERYTHING]), "files": (files(), [FILES])}
    packages |= {
        f"conformance-{version}": (Path(suite(version)[1]), [f"{CONFORMANCE}@{version}", NODE])
        for version in SUITES
    }
    for name, (program, wanted) in packages.items():
        if not program.exists():
            target = ["--prefix", str(folder() / name), "--no-audit", "--no-fund"]
            subprocess.run(["npm", "install", *target, *wanted], check=True)
    for name, package in (("time", TIME), ("fastmcp", FASTMCP)):
        pip = folder() / name / "bin" / "pip"
        if not pip.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder() / name)], check=True)
            subprocess.run([str(pip), "install", "--quiet", package], check=True)


if __name__ == "__main__":
    install()
    suites = (Path(suite(version)[1]) for version in SUITES)
    for program in (everything(), files(), clock(), fastmcp(), *suites):
        print(f"{program.name}: {program if program.exists() else 'missing'}")
