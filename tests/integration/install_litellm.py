"""Install LiteLLM and its proxy for the tests of ``nb.LiteLLMModel``, in a folder of their own.

Usage: ``python tests/integration/install_litellm.py``. The folder is ``NBAGENT_LITELLM``, else
``nbagent-litellm`` in the user's cache folder. It is put behind everything else on the path of the
tests, so what is installed already wins; the proxy runs on it alone.

LiteLLM asks for what came out in the last days, which a mirror of PyPI may not have yet: of the
certificates, its paid features and what only its database needs, any version is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

WANTED = "litellm[proxy]>=1.108,<1.110"
"""As the extra of ``pyproject.toml``, with the proxy; from 1.110 on that is a package of its own, which mirrors lack."""
ANY_VERSION = {"certifi", "litellm-enterprise", "litellm-proxy-extras"}


def folder() -> Path:
    """Where LiteLLM is."""
    if chosen := os.environ.get("NBAGENT_LITELLM"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-litellm"


def installed() -> Distribution | None:
    """LiteLLM there, with all that it needs; None if it isn't."""
    if not _stamp().is_file():
        return None
    return next(distributions(name="litellm", path=[str(folder())]), None)


def requirements(litellm: Distribution) -> list[str]:
    """What LiteLLM and its proxy need here, as pip takes it."""
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
    """Install both, unless they are there."""
    if installed() is not None:
        return
    name = Requirement(WANTED)
    _pip("--no-deps", f"{name.name}{name.specifier}")
    (litellm,) = distributions(name="litellm", path=[str(folder())])
    _pip(*requirements(litellm))
    _stamp().touch()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder())]
    subprocess.run([*command, *arguments], check=True)


def _stamp() -> Path:
    return folder() / "whole"


if __name__ == "__main__":
    install()
    found = installed()
    print(f"litellm {found and found.version}: {folder()}")
