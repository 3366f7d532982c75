"""Checks of Kubernetes' kinds, by component: what kube-apiserver finds wrong with an object of the right types.

`served_kinds` puts them into each Kind. They take objects that are pruned and have their defaults; metadata and the
schema are checked elsewhere. Invariant: a component without an entry has no checks of its own, and none raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

#: Takes the object and, for an update, the stored one before it.
Check = Callable[[Object], list[FieldError]]
UpdateCheck = Callable[[Object, Object], list[FieldError]]


def _accepted(obj: Object) -> list[FieldError]:
    return []


def _accepted_update(obj: Object, old: Object) -> list[FieldError]:
    return []


class Validators(msgspec.Struct, frozen=True):
    """The checks of one kind: of a new object, an update, and writes through its subresources.

    A write through a subresource of `subresources` is checked by that entry alone; one through scale as an update.
    """

    create: Check = _accepted
    update: UpdateCheck = _accepted_update
    subresources: Mapping[str, UpdateCheck] = MappingProxyType({"status": _accepted_update})


_NONE = Validators()
_VALIDATORS: Mapping[str, Validators] = MappingProxyType({})


def validators(component: str) -> Validators:
    """Return the checks of a component, such as `io.k8s.api.apps.v1.Deployment`."""
    return _VALIDATORS.get(component, _NONE)
