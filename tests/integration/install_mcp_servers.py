"""Install the published MCP servers that the tests talk to, each in its own folder.

Usage: ``python tests/integration/install_mcp_servers.py``, with npm on the path. The folder is
``NBAGENT_MCP_SERVERS``, else ``nbagent-mcp-servers`` in the user's cache folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFORMANCE = "@modelcontextprotocol/conformance"
SUITE = "0.2.0-alpha.12"
"""The release of the protocol's own suite that knows protocol 2026-07-28."""
SUITES = ["0.1.16", SUITE] if os.environ.get("NBAGENT_CONFORMANCE") == "all" else [SUITE]
"""The versions of the suite; all scenarios also need the latest stable one."""
NODE = "node@22"
"""The node that runs the suite; older versions cannot."""
EVERYTHING = "@modelcontextprotocol/server-everything"
FILES = "@modelcontextprotocol/server-filesystem"
TIME = "mcp-server-time"
FASTMCP = "fastmcp"


def folder() -> Path:
    """The folder of the servers."""
    if chosen := os.environ.get("NBAGENT_MCP_SERVERS"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-mcp-servers"


def everything() -> Path:
    """The program of the reference server."""
    return folder() / "everything" / "node_modules" / ".bin" / "mcp-server-everything"


def files() -> Path:
    """The program of the server that reads and writes files."""
    return folder() / "files" / "node_modules" / ".bin" / "mcp-server-filesystem"


def fastmcp() -> Path:
    """A Python with FastMCP, the library that most servers use."""
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
    """Install the missing servers."""
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
            python = str(pip.with_name("python"))
            with_uv = ["uv", "pip", "install", "--quiet", "--python", python, package]
            if shutil.which("uv") is None or subprocess.run(with_uv, check=False).returncode:
                subprocess.run([str(pip), "install", "--quiet", package], check=True)


if __name__ == "__main__":
    install()
    suites = (Path(suite(version)[1]) for version in SUITES)
    for program in (everything(), files(), clock(), fastmcp(), *suites):
        print(f"{program.name}: {program if program.exists() else 'missing'}")
