"""Jupyter typesets formulas in rendered HTML; a card's are MathML already, and dollars are dollars."""

from __future__ import annotations

import nbagent as nb
from nbagent.notebook.cards.display import static_bundle


async def test_a_static_card_keeps_jupyter_from_reading_dollars_as_formulas():
    """Both generations of MathJax skip the card: their classes stand on its root."""
    run = nb.Agent(nb.ScriptedModel(["Price is $5 and $6."])).run("Send $200, not $300")
    await run
    markup = static_bundle(run)["text/html"]
    root = markup[markup.index("<section") : markup.index(">", markup.index("<section"))]
    assert "mathjax_ignore" in root
    assert "tex2jax_ignore" in root
    assert "$5 and $6" in markup
