"""Words and sentence lengths of the documents: ``python -m tests.bench.words``.

Words are counted as ``wc -w`` counts them. Sentences are those of paragraphs and lists: headings, tables and blocks of
code have none.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
WITHOUT = {"behavior.md"}
"""A table of cases and their tests, which has no target."""
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
NOT_PROSE = re.compile(r"^\s*(#|\||!?\[[^\]]*\]: |<|!\[).*$", re.MULTILINE)
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"”)*_`]*\s+")


def pages() -> list[Path]:
    """README, CHANGELOG and the pages of ``docs/``."""
    docs = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in WITHOUT)
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *docs]


def sentence_lengths(text: str) -> list[int]:
    """Number of words of each sentence."""
    prose = NOT_PROSE.sub("", BLOCK.sub("\n\n", text))
    paragraphs = re.split(r"\n\s*\n", LIST_ITEM.sub("\n\n", prose))
    sentences = [each for part in paragraphs for each in SENTENCE_END.split(part.strip())]
    return [len(each.split()) for each in sentences if each.strip()]


def main() -> None:
    """Print a table, one row per page."""
    total = 0
    every: list[int] = []
    print(f"{'page':24}{'words':>8}{'median sentence':>18}{'longest':>9}")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        lengths = sentence_lengths(text)
        words = len(text.split())
        print(f"{page.name:24}{words:8}{median(lengths or [0]):18.0f}{max(lengths, default=0):9}")
        total += words
        every += lengths
    print(f"{'all':24}{total:8}{median(every):18.0f}{max(every):9}")


if __name__ == "__main__":
    main()
