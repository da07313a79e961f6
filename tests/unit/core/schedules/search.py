"""The extent of hypothesis searches: the same few examples in every run, or many at random."""

from __future__ import annotations

import os
import random
from typing import Any

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test

THOROUGH = int(os.environ.get("NBAGENT_THOROUGH", "0"))
"""The number of random examples, such as for a night; 0 for fixed examples: half of them in CI, as they are many."""

SEARCH: dict[str, Any] = (
    {"max_examples": THOROUGH, "database": None}
    if THOROUGH
    else {"max_examples": 20 if "CI" in os.environ else 40, "database": None, "derandomize": True}
)
"""For ``hypothesis.settings``. Random examples would make CI fail on changes that broke nothing; the
fixed ones change with the test's own code alone."""


def search(machine: type[RuleBasedStateMachine], steps: int) -> None:
    """Run the search's number of examples of this machine, each of at most so many steps.

    Threads may end in another order than before. Hypothesis then stops, and the search continues with the next
    seed. A failure names its seed; ``NBAGENT_SEED`` starts there again.
    """
    wanted, ended = SEARCH["max_examples"], 0

    class Counted(machine):  # type: ignore[misc, valid-type] -- the class is the argument
        def teardown(self) -> None:
            nonlocal ended
            super().teardown()
            ended += 1

    seed = int(os.environ.get("NBAGENT_SEED", random.randrange(2**32) if THOROUGH else 0))
    while ended < wanted:
        options = settings(
            **SEARCH | {"max_examples": wanted - ended},
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        test = get_state_machine_test(
            Counted, settings=options, _flaky_state={"selecting_rule": False}
        )
        try:
            hypothesis.seed(seed)(test)()
        except FlakyStrategyDefinition:
            pass
        except BaseException as error:
            error.add_note(f"after {ended} examples, with NBAGENT_SEED={seed}")
            raise
        seed += 1
