"""The grammars of ``rfc3987_syntax``, which Jupyter's packages bring: building them takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

_NAME = "rfc3987_syntax"


@contextmanager
def built_on_use() -> Iterator[None]:
    """Inside, an import of jsonschema does not build them; it then builds them when it checks an ``iri``."""
    if _NAME in sys.modules or find_spec(_NAME) is None:
        yield
        return
    late = ModuleType(_NAME)
    late.is_valid_syntax = lambda *given: import_module(_NAME).is_valid_syntax(*given)  # type: ignore[attr-defined]
    sys.modules[_NAME] = late
    try:
        yield
    finally:
        del sys.modules[_NAME]
