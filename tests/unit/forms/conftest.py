"""Schemas and tool calls published by other projects, if their folder exists."""

import pytest

from tests.shared import COLLECTIONS, published


@pytest.fixture(params=COLLECTIONS)
def collection(request):
    """The cases of one collection."""
    return published(request.param)
