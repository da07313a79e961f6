"""Install the published MCP servers that the tests talk to, each in a folder of its own.

Usage: ``python tests/integration/install_mcp_servers.py``, with npm on the path. The folder is
``NBAGENT_MCP_SERVERS``, else ``nbagent-mcp-servers`` in the user's cache folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def install() -> None:
    """Install what is not there."""
    if not everything().exists():
        target = ["--prefix", str(folder() / "everything"), "--no-audit", "--no-fund"]
        subprocess.run(["npm", "install", *target, EVERYTHING], check=True)
    if not clock().exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder() / "time")], check=True)
        pip = folder() / "time" / "bin" / "pip"
        subprocess.run([str(pip), "install", "--quiet", TIME], check=True)


if __name__ == "__main__":
    install()
    for program in (everything(), clock()):
        print(f"{program.name}: {program if program.exists() else 'missing'}")
