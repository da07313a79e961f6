"""Install marimo for the tests, in its own environment that also sees the packages of this one.

Usage: ``python tests/integration/install_marimo.py``. The folder is ``NBAGENT_MARIMO``, else
``nbagent-marimo`` in the user's cache folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

WANTED = "marimo>=0.25,<0.26"


def folder() -> Path:
    """The folder of marimo's environment."""
    if chosen := os.environ.get("NBAGENT_MARIMO"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-marimo"


def python() -> Path:
    """The interpreter of marimo's environment."""
    return folder() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def installed() -> bool:
    """Whether the installation is complete."""
    return (folder() / "whole").is_file()


def install() -> None:
    """Install marimo if it is missing."""
    if installed():
        return
    subprocess.run([sys.executable, "-m", "venv", str(folder())], check=True)
    paths = {"base": str(folder()), "platbase": str(folder())}
    own = Path(sysconfig.get_path("purelib", "venv", paths))
    (own / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([str(python()), "-m", "pip", "install", "--quiet", WANTED], check=True)
    (folder() / "whole").touch()


if __name__ == "__main__":
    install()
    print(f"marimo: {folder()}")
