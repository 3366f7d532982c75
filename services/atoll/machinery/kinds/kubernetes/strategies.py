"""What kube-apiserver sets and resets on writes of its kinds, by component: phases, counters, fields of a type.

`served_kinds` puts the functions into each Kind, as `prepare_create` and `prepare_update`. They take unvalidated
objects before pruning and defaults, with nulls, and change them in place; status of clients is gone already. What
depends on defaults, on other objects or on a draw is admission's (`shard.admission`). Invariant: none raises, and a
second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from atoll.machinery.meta.objects import Object

Create = Callable[[Object], None]
Update = Callable[[Object, Object], None]


def _unchanged(obj: Object) -> None:
    return None


def _unchanged_update(obj: Object, old: Object) -> None:
    return None


_CREATE: Mapping[str, Create] = MappingProxyType({})
_UPDATE: Mapping[str, Update] = MappingProxyType({})


def prepare_create(component: str) -> Create:
    """Return what is done to a new object of a component, such as `io.k8s.api.core.v1.Pod`."""
    return _CREATE.get(component, _unchanged)


def prepare_update(component: str) -> Update:
    """Return what is done to a changed object, with the stored one as second argument."""
    return _UPDATE.get(component, _unchanged_update)
