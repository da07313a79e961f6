"""Install the older ipykernels that the kernel tests run against, each in its own folder.

Usage: ``python tests/integration/install_kernels.py``. The folder is ``NBAGENT_KERNELS``, else
``nbagent-kernels`` in the user's cache folder. Only ipykernel itself is installed there; its
dependencies come from the environment of the Python that runs this script.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OLDER = ("6.29.5", "6.31.0", "7.0.1", "7.3.0")
"""The tested ipykernels except the newest one, which is the installed one."""


def folder() -> Path:
    """The folder of the older ipykernels."""
    if chosen := os.environ.get("NBAGENT_KERNELS"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-kernels"


def path_of(version: str) -> Path | None:
    """The import path of an older ipykernel, or None if it isn't installed."""
    path = folder() / version
    return path if (path / "ipykernel" / "_version.py").is_file() else None


def install(version: str) -> None:
    """Install one older ipykernel if it is missing."""
    if path_of(version) is not None:
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    target = ["--target", str(folder() / version), f"ipykernel=={version}"]
    subprocess.run([*command, *target], check=True)


if __name__ == "__main__":
    for each in OLDER:
        install(each)
        print(f"ipykernel {each}: {path_of(each)}")
