"""Correlation of parts of a new object with parts of the old one, and detection of unchanged parts.

`evaluation` uses it for oldSelf and for ratcheting: failures of rules in an unchanged part are warnings. Struct fields
and keys of maps correlate by name, items of lists of type map by their keys, and no other items.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object


class CorrelatedValue:
    """A part of the new object with the correlated part of the old one."""

    __slots__ = ("_same", "old", "schema", "value")

    def __init__(self, schema: Any, value: Any, old: Any) -> None:
        self.schema, self.value, self.old = schema, value, old
        self._same: bool | None = None

    def is_same(self) -> bool:
        """Report whether the part is unchanged; computed at most once."""
        if self._same is None:
            self._same = unchanged(self.schema, self.value, self.old)
        return self._same

    def key(self, key: str) -> CorrelatedValue | None:
        """Return the correlated value of a field or an entry; None if the old object or the schema has none."""
        if type(self.old) is not dict or key not in self.old:
            return None
        schema = child_schema(self.schema, key)
        return CorrelatedValue(schema, self.value[key], self.old[key]) if schema is not None else None


class Correlation:
    """The state of ratcheting: the correlated value of this part, or of the nearest part above it."""

    __slots__ = ("_link", "_nearest")

    def __init__(self, link: CorrelatedValue | None, nearest: CorrelatedValue | None = None) -> None:
        self._link, self._nearest = link, nearest

    def is_same(self) -> bool:
        """Report whether this part is unchanged, as far as it correlates."""
        link = self._link or self._nearest
        return link is not None and link.is_same()

    def key(self, key: str) -> Correlation:
        """Return the correlation of a field or an entry."""
        if self._link is None:
            return self
        if self._nearest is None and key in ("apiVersion", "kind"):
            # Old and new object have the same version here, whatever version is stored.
            return _NONE
        return Correlation(self._link.key(key), self._link)

    def item(self, value: Any, old: Any) -> Correlation:
        """Return the correlation of an item with its old item, or None."""
        if self._link is None:
            return self
        items = self._link.schema.get("items")
        return Correlation(CorrelatedValue(items, value, old) if old is not None else None, self._link)


_NONE: Final = Correlation(None)


def child_schema(schema: Object, key: str) -> Object | None:
    """Return the schema of a field or an entry, or None if it is not declared."""
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    found = properties.get(key, additional)
    return found if isinstance(found, dict) else None


class OldItems:
    """The items of an old list by the keys of new ones; the first of repeated keys counts."""

    __slots__ = ("_by_key", "_keys")

    def __init__(self, schema: Object, old: Any) -> None:
        self._keys: tuple[str, ...] = ()
        self._by_key: dict[Any, Any] = {}
        if schema.get("x-kubernetes-list-type") == "map" and type(old) is list:
            self._keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            for item in old:
                if (key := self._key(item)) is not None:
                    self._by_key.setdefault(key, item)

    def find(self, item: Any) -> Any:
        """Return the old item with the keys of a new one, or None."""
        return self._by_key.get(self._key(item)) if self._by_key else None

    def _key(self, item: Any) -> tuple[Any, ...] | None:
        if type(item) is not dict or not self._keys:
            return None
        found = [item.get(key) for key in self._keys]
        if any(value is None or isinstance(value, dict | list) for value in found):
            return None
        return tuple((type(value) is bool, value) for value in found)


def unchanged(schema: Any, value: Any, old: Any) -> bool:
    """Report whether a value is unchanged; items of a list of type map may change their order.

    Undeclared values count as changed, as in Kubernetes.
    """
    if type(value) is dict:
        return _unchanged_object(schema, value, old)
    if type(value) is not list:
        return same(value, old)
    if type(old) is not list or len(old) != len(value):
        return False
    if schema.get("x-kubernetes-list-type") != "map":
        return same(value, old)
    before, items = OldItems(schema, old), schema.get("items")
    found = ((item, before.find(item)) for item in value)
    return all(old_item is not None and unchanged(items, item, old_item) for item, old_item in found)


def _unchanged_object(schema: Object, value: dict[str, Any], old: Any) -> bool:
    if type(old) is not dict or len(old) != len(value):
        return False
    for key, item in value.items():
        child = child_schema(schema, key)
        if child is None or key not in old or not unchanged(child, item, old[key]):
            return False
    return True
