"""Fetch Pyodide and the packages that nbagent needs in it, for the tests.

Usage: ``python tests/integration/install_pyodide.py``. The folder is ``NBAGENT_PYODIDE``, else
``nbagent-pyodide`` in the user's cache folder.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "pyodide" / "stand_ins"


def folder() -> Path:
    """Where it all is."""
    if chosen := os.environ.get("NBAGENT_PYODIDE"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-pyodide"


def builder() -> ModuleType:
    """``docs/site/lite.py``, which is no package."""
    spec = importlib.util.spec_from_file_location("nbagent_lite", ROOT / "docs/site/lite.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def installed() -> bool:
    """Whether all of it is there."""
    return (folder() / "whole").is_file()


def install() -> None:
    """Fetch it, unless it is there."""
    if installed():
        return
    lite = builder()
    lite.fetch_pyodide(folder() / "pyodide")
    wheels = folder() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    lite.fetch_wheels(wheels)
    (wheels / "whole").touch()
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder() / "packages")
    (folder() / "whole").touch()


if __name__ == "__main__":
    install()
    print(f"Pyodide: {folder()}")
