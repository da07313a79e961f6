"""Install LiteLLM and its proxy for the tests of ``nb.LiteLLMModel``, in their own folder.

Usage: ``python tests/integration/install_litellm.py``. The folder is ``NBAGENT_LITELLM``, else
``nbagent-litellm/site-packages`` in the user's cache folder; from a folder of another name, Hypothesis reads all source
files, as if they were ours. The tests append the folder to their path, so installed packages have priority; the proxy
uses this folder alone.

LiteLLM requires packages that are a few days old, which a mirror of PyPI may not have yet. Of certifi and the
packages for paid features and the database, any version is accepted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

WANTED = "litellm[proxy]>=1.108,<1.110"
"""Like the extra of ``pyproject.toml``, plus the proxy. From 1.110 on, the proxy is a package that mirrors lack."""
ANY_VERSION = {"certifi", "litellm-enterprise", "litellm-proxy-extras"}


def folder() -> Path:
    """The folder of LiteLLM."""
    if chosen := os.environ.get("NBAGENT_LITELLM"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-litellm" / "site-packages"


def installed() -> Distribution | None:
    """The installed LiteLLM with all its dependencies; None if it is missing."""
    if not _stamp().is_file():
        return None
    return next(distributions(name="litellm", path=[str(folder())]), None)


def requirements(litellm: Distribution) -> list[str]:
    """The requirements of LiteLLM and its proxy on this platform, for pip."""
    wanted = []
    for text in litellm.requires or ():
        each = Requirement(text)
        if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in ("", "proxy")):
            extras = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
            wanted.append(
                each.name + extras + ("" if each.name in ANY_VERSION else str(each.specifier))
            )
    return wanted


def install() -> None:
    """Install LiteLLM and its proxy if they are missing."""
    if installed() is not None:
        return
    name = Requirement(WANTED)
    _pip("--no-deps", f"{name.name}{name.specifier}")
    (litellm,) = distributions(name="litellm", path=[str(folder())])
    _pip(*requirements(litellm))
    _stamp().touch()


def _pip(*arguments: str) -> None:
    own = ["--target", str(folder()), *arguments]
    with_uv = ["uv", "pip", "install", "--quiet", "--python", sys.executable, *own]
    if shutil.which("uv") is None or subprocess.run(with_uv, check=False).returncode:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *own], check=True)


def _stamp() -> Path:
    return folder() / "whole"


if __name__ == "__main__":
    install()
    found = installed()
    print(f"litellm {found and found.version}: {folder()}")
