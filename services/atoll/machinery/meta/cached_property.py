"""A property whose value is made once for each object, without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all objects of a class while it makes a value. A
computation in slices that pauses meanwhile would stop the event loop at the next such property, for ever. Here two
threads may make the same value; the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # named like the one that it replaces
    """The decorator of a method without arguments. The object needs a `__dict__`."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, obj: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, obj: object, owner: type) -> T: ...
    def __get__(self, obj: Any, owner: type) -> cached_property[T] | T:
        if obj is None:
            return self
        found = obj.__dict__[self._name] = self._make(obj)
        return found
