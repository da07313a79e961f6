"""The quickstart in JupyterLite, as a folder of static files: a page that needs no server, and no account.

    python docs/site/lite.py build/site/lite   # in an environment with: pip install -e ".[lite]"

Pyodide comes from npm, packages from the package index, where Pyodide's own are. Two of them are in Pyodide's
distribution alone: the page fetches these when it starts, or they are given with ``--wheel``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYODIDE = "314.0.6"
"""The one that jupyterlite-pyodide-kernel is made for."""
PYTHON = "3.14"
PLATFORM = "pyemscripten_2026_0_wasm32"
DISTRIBUTION = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
ELSEWHERE = ("nh3", "rpds-py")
"""What Pyodide's distribution alone has for a web page."""
KERNEL = ("ipython", "comm", "jedi", "micropip", "packaging")
"""What the kernel needs from the package index."""
OF_KERNEL = ("piplite", "pyodide-kernel", "ipykernel")
"""What comes with it."""
UNUSED = ("pexpect", "ptyprocess", "psutil", "widgetsnbextension", "openai", "nest-asyncio")
"""What nothing in a web page uses: terminals, the client of models that the demo has no use for."""
ENVIRONMENT = {
    "sys_platform": "emscripten",
    "platform_system": "Emscripten",
    "python_version": PYTHON,
    "python_full_version": f"{PYTHON}.2",
    "os_name": "posix",
    "extra": "",
}


def fetch_pyodide(into: Path) -> Path:
    """Pyodide's core as npm has it; gives its folder."""
    if not (into / "pyodide.mjs").is_file():
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save"]
        with tempfile.TemporaryDirectory() as there:
            subprocess.run([*npm, "--prefix", there, f"pyodide@{PYODIDE}"], check=True)
            shutil.copytree(Path(there) / "node_modules" / "pyodide", into, dirs_exist_ok=True)
    return into


def fetch_wheels(into: Path) -> None:
    """The wheels of all that nbagent and its kernel need in a web page, but nbagent's own and ``ELSEWHERE``."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        own = tomllib.load(file)["project"]["dependencies"]
    wanted = {one.name: one for one in needed([*own, *KERNEL])}
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    pip += ["--platform", PLATFORM, "--python-version", PYTHON, "--implementation", "cp"]
    known: dict[str, list[Requirement]] = {}
    while new := [one for name, one in wanted.items() if name not in known]:
        # what packages need is known once they are there; an exact version is asked for first
        subprocess.run([*pip, "--dest", str(into), *map(str, new)], check=True)
        known |= {one.name: [] for one in new}
        for wheel in into.glob("*.whl"):
            for one in needed(requirements(wheel)):
                wanted.setdefault(one.name, one)


def needed(told: Sequence[str]) -> Iterator[Requirement]:
    """Those of them that hold in a web page, and come from the package index."""
    for one in map(Requirement, told):
        one.name = canonicalize_name(one.name)
        holds = one.marker is None or one.marker.evaluate(ENVIRONMENT)
        if holds and one.name not in {*ELSEWHERE, *UNUSED}:
            one.marker, one.extras = None, set()
            yield one


def of_kernel() -> list[Path]:
    """The wheels that come with jupyterlite-pyodide-kernel."""
    share = Path(sysconfig.get_path("data")) / "share" / "jupyter" / "labextensions"
    there = share / "@jupyterlite" / "pyodide-kernel-extension" / "static" / "pypi"
    return [one for one in there.glob("*.whl") if metadata(one)[0] in OF_KERNEL]


def requirements(wheel: Path) -> list[str]:
    """What a wheel says that it needs."""
    return metadata(wheel)[2]


def metadata(wheel: Path) -> tuple[str, str, list[str]]:
    """A wheel's name and version, and what it needs."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(name).decode(), headersonly=True)
    return canonicalize_name(told["Name"]), told["Version"], told.get_all("Requires-Dist") or []


def imports(wheel: Path) -> list[str]:
    """The names by which a wheel's packages are imported."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    names = {top.removesuffix(".py") for top in tops if "." not in top.removesuffix(".py")}
    return sorted(name for name in names if name.isidentifier())


def lock(pyodide: Path, wheels: Sequence[Path], place: str) -> None:
    """Make these wheels the packages that Pyodide knows, beside ``ELSEWHERE``: importing one loads it."""
    file = pyodide / "pyodide-lock.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    packages = {name: told["packages"][name] for name in ELSEWHERE}
    for each in packages.values():
        if not each["file_name"].startswith("https:"):
            each["file_name"] = DISTRIBUTION + each["file_name"]
    for wheel in wheels:
        name, version, needs = metadata(wheel)
        packages[name] = {
            "name": name,
            "version": version,
            "file_name": place + wheel.name,
            "install_dir": "site",
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "package_type": "package",
            "imports": imports(wheel),
            "depends": [one.name for one in needed(needs)],
            "unvendored_tests": False,
        }
    for name, each in packages.items():
        needs = {*each["depends"], *(ELSEWHERE if name == "jupyter-nbagent" else ())}
        needs |= {"rpds-py"} if name == "referencing" else set()
        each["depends"] = sorted(needs & set(packages))
    told["packages"] = packages
    file.write_text(json.dumps(told), encoding="utf-8")


def build(out: Path, *, given: Sequence[Path] = (), cache: Path) -> None:
    """Build the site into a folder.

    Args:
        out: where it goes; what is there is replaced.
        given: wheels that are taken in the place of those that the distribution has.
        cache: where what was fetched is kept.
    """
    pyodide = fetch_pyodide(cache / "pyodide")
    fetched = cache / "wheels"
    if not (fetched / "whole").is_file():
        fetched.mkdir(parents=True, exist_ok=True)
        fetch_wheels(fetched)
        (fetched / "whole").touch()
    with tempfile.TemporaryDirectory() as there:
        work = Path(there)
        wheels = work / "wheels"
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
        subprocess.run([*pip, str(wheels), str(ROOT)], check=True)
        for wheel in [*fetched.glob("*.whl"), *of_kernel(), *given]:
            shutil.copy(wheel, wheels)
        static = work / "lite" / "static" / "pyodide"
        shutil.copytree(pyodide, static, ignore=shutil.ignore_patterns("*.map", "*.html", "*.ts"))
        for wheel in sorted(wheels.iterdir()):
            shutil.copy(wheel, static)
        lock(static, sorted(wheels.iterdir()), "")
        options = {"packages": [*KERNEL, *OF_KERNEL, "jupyter-nbagent"]}  # all of it at once
        kernel = {"@jupyterlite/pyodide-kernel-extension:kernel": {"loadPyodideOptions": options}}
        config = {"jupyter-config-data": {"litePluginSettings": kernel, "appName": "nbagent"}}
        (work / "lite" / "jupyter-lite.json").write_text(
            json.dumps({"jupyter-lite-schema-version": 0, **config}), encoding="utf-8"
        )
        shutil.rmtree(out, ignore_errors=True)
        lite = [sys.executable, "-m", "jupyter", "lite", "build", "--lite-dir", str(work / "lite")]
        lite += ["--contents", str(ROOT / "notebooks" / "01_quickstart.ipynb")]
        lite += ["--apps", "lab", "--apps", "notebooks", "--no-sourcemaps", "--output-dir"]
        subprocess.run([*lite, str(out.resolve())], check=True, cwd=work)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Build the quickstart in JupyterLite.")
    parser.add_argument("out", type=Path, help="the folder to build")
    parser.add_argument("--wheel", type=Path, action="append", default=[], help="one to take in")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nbagent-pyodide"
    parser.add_argument("--cache", type=Path, default=cache, help="where what is fetched is kept")
    chosen = parser.parse_args()
    build(chosen.out, given=chosen.wheel, cache=chosen.cache)


if __name__ == "__main__":
    main()
