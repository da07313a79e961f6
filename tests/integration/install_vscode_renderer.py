"""Install VS Code's own renderer of widgets for the tests, in its own folder.

Usage: ``python tests/integration/install_vscode_renderer.py``. The folder is ``NBAGENT_VSCODE``, else
``nbagent-vscode`` in the user's cache folder. Needs npm. The published files are used without their
dependencies, because the renderer is built as one file.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

PACKAGES = {"ipywidgets.js": "@vscode/jupyter-ipywidgets8@1.0.9", "require.js": "requirejs@2.3.8"}
"""The file to take from each package: the renderer, and the loader of VS Code's page."""


def folder() -> Path:
    """The folder of the renderer."""
    if chosen := os.environ.get("NBAGENT_VSCODE"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-vscode"


def installed() -> bool:
    """Whether all files are installed."""
    return all((folder() / name).is_file() for name in PACKAGES)


def install() -> None:
    """Install the missing files."""
    folder().mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        if (folder() / name).is_file():
            continue
        packed = subprocess.run(
            ["npm", "pack", "--silent", package],
            cwd=folder(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        archive = folder() / packed.stdout.split()[-1]
        with tarfile.open(archive) as files:
            (member,) = [each for each in files.getnames() if each.split("/")[-1] == name]
            source = files.extractfile(member)
            assert source is not None
            (folder() / name).write_bytes(source.read())
        archive.unlink()


if __name__ == "__main__":
    install()
    print(f"VS Code's renderer: {folder()}")
