"""How thoroughly hypothesis searches: the same few examples in every run, or many at random."""

from __future__ import annotations

import os
from typing import Any

THOROUGH = int(os.environ.get("NBAGENT_THOROUGH", "0"))
"""How many examples to search at random, as a night has time for; 0 for what CI does."""

SEARCH: dict[str, Any] = (
    {"max_examples": THOROUGH, "database": None}
    if THOROUGH
    else {"max_examples": 40, "database": None, "derandomize": True}
)
"""For ``hypothesis.settings``. Random examples would make CI fail on changes that broke nothing; the
fixed ones change with the test's own code alone."""
