"""Schemas and tool calls that other projects published, where their folder is there."""

import pytest

from tests.shared import COLLECTIONS, published


@pytest.fixture(params=COLLECTIONS)
def collection(request):
    """The cases of one collection."""
    return published(request.param)
