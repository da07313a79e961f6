"""Jupyter typesets formulas in HTML; a card's are already MathML, and its dollars are dollars."""

from __future__ import annotations

import nbagent as nb
from nbagent.notebook.cards.display import static_bundle


async def test_a_static_card_keeps_jupyter_from_reading_dollars_as_formulas():
    """Classes on the card's root make both generations of MathJax skip the card."""
    run = nb.Agent(nb.ScriptedModel(["Price is $5 and $6."])).run("Send $200, not $300")
    await run
    markup = static_bundle(run)["text/html"]
    root = markup[markup.index("<section") : markup.index(">", markup.index("<section"))]
    assert "mathjax_ignore" in root
    assert "tex2jax_ignore" in root
    assert "$5 and $6" in markup
