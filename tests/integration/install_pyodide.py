"""Download Pyodide with nbagent's dependencies, and install JupyterLite in its own environment, for the tests.

Usage: ``python tests/integration/install_pyodide.py``. The folder is ``NBAGENT_PYODIDE``, else
``nbagent-pyodide`` in the user's cache folder.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "pyodide" / "stand_ins"


def folder() -> Path:
    """The folder of the downloads."""
    if chosen := os.environ.get("NBAGENT_PYODIDE"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-pyodide"


def python() -> Path:
    """The interpreter that builds JupyterLite."""
    return folder() / ("env/Scripts/python.exe" if os.name == "nt" else "env/bin/python")


def builder() -> ModuleType:
    """``docs/site/lite.py``, which is not in a package."""
    spec = importlib.util.spec_from_file_location("nbagent_lite", ROOT / "docs/site/lite.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def installed() -> bool:
    """Whether the installation is complete."""
    return (folder() / "whole").is_file()


def install() -> None:
    """Download and install everything if it is missing."""
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
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["optional-dependencies"]["lite"]
    subprocess.run([sys.executable, "-m", "venv", str(folder() / "env")], check=True)
    pip = [str(python()), "-m", "pip", "install", "--quiet"]
    # first the packages that the site must find in this environment, before the tests' packages are visible
    subprocess.run([*pip, "--no-deps", "anywidget", "jupyterlab-widgets"], check=True)
    paths = {"base": str(folder() / "env"), "platbase": str(folder() / "env")}
    own = Path(sysconfig.get_path("purelib", "venv", paths))
    (own / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([*pip, *wanted], check=True)
    there = "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension/static/pypi"
    for wheel in (folder() / "env" / there).glob("*kernel-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder() / "packages")
    (folder() / "whole").touch()


def stand_in(into: Path, name: str, version: str, module: str) -> Path:
    """Build a wheel of a package that no index has for web pages; return its path."""
    wheel = into / f"{name}-{version}-py3-none-any.whl"
    told = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(STAND_INS / f"{module}.py", f"{module}.py")
        for part, text in told.items():
            archive.writestr(f"{name}-{version}.dist-info/{part}", text)
    return wheel


def build(out: Path) -> None:
    """Build the quickstart in JupyterLite, with stand-ins for packages from the network."""
    wheels = [
        stand_in(out.parent, "nh3", "0.3.4", "nh3"),
        stand_in(out.parent, "rpds_py", "0.30.0", "rpds"),
    ]
    command = [str(python()), str(ROOT / "docs/site/lite.py"), str(out), "--cache", str(folder())]
    told = [part for wheel in wheels for part in ("--wheel", str(wheel))]
    done = subprocess.run([*command, *told], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"JupyterLite was not built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


if __name__ == "__main__":
    install()
    print(f"Pyodide: {folder()}")
