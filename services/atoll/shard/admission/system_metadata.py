"""Admission of the system's annotations, labels and finalizers: other writers' values are restored or refused.

The first of kcp's plug-ins, so that the others may set what it removed. Enforces the table of `system_keys`. Invariant:
for a kind without rows it costs one look-up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.authorization.effective_users import effective_users
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError, invalid
from atoll.machinery.meta.user import MASTERS, User
from atoll.shard.admission.system_keys import SYSTEM_KEYS, Field, GroupResource, Rule, SystemKey

_KEPT = (Rule.RESTORED, Rule.FROZEN)


def groups_of(user: User, cluster: str) -> Collection[str]:
    """Return the groups of a user in a cluster, without those of its warrants."""
    # Only `extra` carries scopes and warrants; without it the groups apply as they are.
    return effective_users(user, cluster).own.groups if user.extra else user.groups


def rows_by_kind(rows: Iterable[SystemKey]) -> dict[GroupResource, tuple[SystemKey, ...]]:
    """Return the rows that this plug-in enforces, by kind."""
    found: dict[GroupResource, list[SystemKey]] = defaultdict(list)
    for row in rows:
        if row.rule in (*_KEPT, Rule.REFUSED):
            for kind in row.kinds:
                found[kind].append(row)
    return {kind: tuple(each) for kind, each in found.items()}


class SystemMetadata(Plugin):
    """Restores and refuses values of system keys by users who may not write them."""

    def __init__(self) -> None:
        self.resources = self._rows = rows_by_kind(SYSTEM_KEYS)

    def mutate(self, review: Review) -> None:
        if review.obj is None or review.call.whole:
            return
        before = review.old["metadata"] if review.old is not None else {}
        for row in self._binding(review, _KEPT):
            if row.rule is Rule.RESTORED or review.old is not None:
                _restore(row, review.obj["metadata"], before)

    def validate(self, review: Review) -> None:
        if review.obj is None or review.old is None:
            return
        now, then = review.obj["metadata"], review.old["metadata"]
        found = [error for row in self._binding(review, (Rule.REFUSED,)) for error in _changes(row, now, then)]
        if found:
            raise invalid(review.call.kind.group_kind, now["name"], found)

    def _binding(self, review: Review, rules: Collection[Rule]) -> Iterator[SystemKey]:
        """Yield the rows with these rules that bind the caller."""
        rows = self._rows[review.group_resource]
        groups = groups_of(review.call.user, review.call.cluster)
        if MASTERS not in groups:
            yield from (row for row in rows if row.rule in rules and row.writers.isdisjoint(groups))


def _restore(row: SystemKey, metadata: Object, before: Object) -> None:
    """Set the row's keys of `metadata` back to those of `before`. Lists and maps are replaced, not changed."""
    name = row.field.value
    now, then = metadata.get(name) or (), before.get(name) or ()
    if not now and not then:
        metadata.pop(name, None)
        return
    kept: Any = _finalizers(row, now, then) if row.field is Field.FINALIZER else _pairs(row.matches, now, then)
    if kept:
        metadata[name] = kept
    else:
        metadata.pop(name, None)


def _finalizers(row: SystemKey, now: Collection[str], then: Collection[str]) -> list[str]:
    if (row.key in now) == (row.key in then):
        return list(now)
    others = [each for each in now if each != row.key]
    return [*others, row.key] if row.key in then else others


def _pairs(matches: Callable[[str], bool], now: Any, then: Any) -> dict[str, str]:
    found = {key: value for key, value in dict(now).items() if not matches(key)}
    found.update((key, value) for key, value in dict(then).items() if matches(key))
    return found


def _changes(row: SystemKey, now: Object, then: Object) -> Iterator[FieldError]:
    """Yield an error for each key of the row that differs."""
    name = row.field.value
    new, old = now.get(name) or (), then.get(name) or ()
    error = partial(FieldError, "FieldValueForbidden")
    if row.field is not Field.FINALIZER:
        changed = {key for key in {*new, *old} if row.matches(key) and dict(new).get(key) != dict(old).get(key)}
        yield from (error(f"metadata.{name}[{key}]", "Forbidden: is set by the system") for key in sorted(changed))
    elif (row.key in new) != (row.key in old):
        verb = "taken away" if row.key in old else "set"
        yield error(f"metadata.{name}", f"Forbidden: {row.key} is {verb} by the system")
