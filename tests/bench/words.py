"""Words and sentence lengths of the documents: ``python -m tests.bench.words``.

``--at REVISION`` prints those of a git revision beside today's.

Words are counted as ``wc -w`` counts them. Sentences are those of paragraphs and lists: headings, tables and blocks of
code have none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
WITHOUT = {"behavior.md"}
"""A table of cases and their tests, which has no target."""
LONG = 25
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
NOT_PROSE = re.compile(r"^\s*(#|\||!?\[[^\]]*\]: |<|!\[).*$", re.MULTILINE)
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"”)*_`]*\s+")


def pages(revision: str | None) -> dict[str, str]:
    """Texts of README, CHANGELOG and the pages of ``docs/`` by name, from today or from a git revision."""
    if revision is None:
        docs = [f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")]
    else:
        docs = _git("ls-tree", "--name-only", revision, "docs/").splitlines()
    paths = ["README.md", "CHANGELOG.md", *sorted(path for path in docs if path.endswith(".md"))]
    kept = [Path(path) for path in paths if Path(path).name not in WITHOUT]
    if revision is None:
        return {path.name: (ROOT / path).read_text(encoding="utf-8") for path in kept}
    return {path.name: _git("show", f"{revision}:{path}") for path in kept}


def _git(*arguments: str) -> str:
    """Output of a git command in the repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def sentence_lengths(text: str) -> list[int]:
    """Number of words of each sentence."""
    prose = NOT_PROSE.sub("", BLOCK.sub("\n\n", text))
    paragraphs = re.split(r"\n\s*\n", LIST_ITEM.sub("\n\n", prose))
    sentences = [each for part in paragraphs for each in SENTENCE_END.split(part.strip())]
    return [len(each.split()) for each in sentences if each.strip()]


def figures(texts: list[str]) -> str:
    """Number of words, median and longest sentence, and number of long sentences, as columns."""
    lengths = [length for text in texts for length in sentence_lengths(text)] or [0]
    words = sum(len(text.split()) for text in texts)
    return f"{words:8}{median(lengths):8.0f}{max(lengths):9}{sum(n > LONG for n in lengths):11}"


def main() -> None:
    """Print a table, one row per page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", metavar="REVISION", help="print this git revision's figures first")
    revision = parser.parse_args().at
    both = [pages(each) for each in ([revision] if revision else []) + [None]]
    print(f"{'page':18}" + f"{'words':>8}{'median':>8}{'longest':>9}{'over 25':>11}" * len(both))
    for name in sorted({name for texts in both for name in texts}):
        print(f"{name:18}" + "".join(figures([t[name]] if name in t else []) for t in both))
    print(f"{'all':18}" + "".join(figures([*texts.values()]) for texts in both))


if __name__ == "__main__":
    main()
