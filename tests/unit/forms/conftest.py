"""Schemas and tool calls that other projects published, where their folder is there."""

import pytest

from tests.unit.forms.judging import CASES, COLLECTIONS, cases_of


@pytest.fixture(params=COLLECTIONS)
def collection(request):
    """The cases of one collection."""
    path = CASES / f"{request.param}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    return cases_of(path)
