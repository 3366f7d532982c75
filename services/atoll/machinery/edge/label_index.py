"""Two indexes by label: what has labels, for a selector; and what has selectors, for labels.

`where.WhereIndex` asks them, so that a change of one object among ten thousand looks at a few. Both return candidates:
everything that matches is among them, and the caller tests each. Invariant: an entry is in the sets of what it was set
to last, and no set is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from atoll.machinery.meta.selectors import LabelSelector

K = TypeVar("K", bound=Hashable)


class LabelIndex(Generic[K]):
    """Keys of what has labels."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], set[K]] = {}

    def move(self, key: K, before: Mapping[str, str], labels: Mapping[str, str]) -> None:
        """Give a key other labels than it had; none where it is new or gone."""
        _move(self._keys, key, before.items(), labels.items())

    def matching(self, selector: LabelSelector, every: Collection[K]) -> Collection[K]:
        """Return the candidates of a selector: `every` where it requires no label with one value."""
        if selector.matches_nothing:
            return ()
        return min((self._keys.get(label, ()) for label in selector.exact().items()), key=len, default=every)


class SelectorIndex(Generic[K]):
    """Keys of what has selectors. Each selector counts by one label that it requires with one value, if any."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str] | None, set[K]] = {}

    def move(self, key: K, before: Iterable[LabelSelector], selectors: Iterable[LabelSelector]) -> None:
        """Give a key other selectors than it had; none where it is new or gone."""
        _move(self._keys, key, _labels(before), _labels(selectors))

    def matching(self, labels: Mapping[str, str]) -> set[K]:
        """Return the candidates that select something with these labels."""
        return set[K]().union(*(self._keys.get(label, ()) for label in (None, *labels.items())))


L = TypeVar("L", bound=Hashable)


def _labels(selectors: Iterable[LabelSelector]) -> set[tuple[str, str] | None]:
    return {next(iter(each.exact().items()), None) for each in selectors if not each.matches_nothing}


def _move(keys: dict[L, set[K]], key: K, before: Collection[L], after: Collection[L]) -> None:
    for label in before:
        if label not in after:
            keys[label].discard(key)
            if not keys[label]:
                del keys[label]
    for label in after:
        keys.setdefault(label, set()).add(key)
