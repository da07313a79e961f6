"""A stand-in for rpds-py, which has no wheel for web pages. It copies instead of sharing structure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class HashTrieMap(Mapping):
    def __init__(self, value: Any = (), **more: Any) -> None:
        self._held = dict(value, **more)

    @classmethod
    def convert(cls, value: Any) -> HashTrieMap:
        return value if isinstance(value, cls) else cls(value)

    def __getitem__(self, key: Any) -> Any:
        return self._held[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __hash__(self) -> int:
        return hash(frozenset(self._held))

    def insert(self, key: Any, value: Any) -> HashTrieMap:
        return HashTrieMap({**self._held, key: value})

    def remove(self, key: Any) -> HashTrieMap:
        left = dict(self._held)
        del left[key]
        return HashTrieMap(left)

    def update(self, *more: Any, **named: Any) -> HashTrieMap:
        whole = dict(self._held)
        for one in more:
            whole.update(one)
        return HashTrieMap({**whole, **named})


class HashTrieSet(frozenset):
    def insert(self, value: Any) -> HashTrieSet:
        return HashTrieSet({*self, value})

    def discard(self, value: Any) -> HashTrieSet:
        return HashTrieSet(self - {value})

    def update(self, *more: Iterable[Any]) -> HashTrieSet:
        return HashTrieSet(self.union(*more))


class List(tuple):
    __slots__ = ()

    def __new__(cls, *values: Any) -> List:
        whole = values[0] if len(values) == 1 and isinstance(values[0], Iterable) else values
        return super().__new__(cls, whole)

    def push_front(self, value: Any) -> List:
        return List((value, *self))
