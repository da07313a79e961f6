"""Install the frameworks whose agents ``nb.watch`` runs, in a folder of their own.

Usage: ``python tests/integration/install_others.py``. The folder is ``NBAGENT_OTHERS``, else ``nbagent-others`` in the
user's cache folder. Only child processes of the tests import from there, before the packages of this environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

WANTED = (
    "langgraph>=1.2.24,<1.3",
    "langchain>=1.5.2,<1.6",
    "langgraph-checkpoint-sqlite>=3.1,<4",
    "openai-agents>=0.24,<0.25",
    "pydantic-ai-slim>=2.68,<2.69",
)


def folder() -> Path:
    """The folder of the frameworks."""
    if chosen := os.environ.get("NBAGENT_OTHERS"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-others"


def is_installed() -> bool:
    """Whether all frameworks are installed there."""
    return (folder() / "whole").is_file()


def install() -> None:
    """Install the frameworks if they are missing."""
    if is_installed():
        return
    own = ["--target", str(folder()), *WANTED]
    with_uv = ["uv", "pip", "install", "--quiet", "--python", sys.executable, *own]
    if shutil.which("uv") is None or subprocess.run(with_uv, check=False).returncode:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *own], check=True)
    (folder() / "whole").touch()


if __name__ == "__main__":
    install()
    print(f"langgraph, openai-agents, pydantic-ai: {folder()}")
