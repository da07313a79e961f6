"""Values that may be made with their first fields in place: ``Confirm("Sure?")``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

F = TypeVar("F", bound=Callable[..., None])


def without_init(init: F) -> F:
    """Let pydantic validate without this ``__init__``, which only places arguments."""
    init.__dict__["__pydantic_base_init__"] = True
    return init


class InPlace(BaseModel):
    """Base of what may be made with its first fields in place."""

    model_config = ConfigDict(defer_build=True)
    first_fields: ClassVar[tuple[str, ...]] = ()
    """Those that need no name, in order; a subclass has the same."""

    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        names, name = self.first_fields, type(self).__name__
        if len(given) > len(names):
            raise TypeError(
                f"{name} takes {', '.join(names)} in place and the rest by name, as in "
                f"{name}(…, name=value); it was given {len(given)} values"
            )
        placed = dict(zip(names, given, strict=False))
        for twice in placed.keys() & fields.keys():
            raise TypeError(f"{name} was given {twice!r} in place and by name")
        super().__init__(**placed, **fields)
