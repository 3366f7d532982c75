"""The checks of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

#: Takes the object and, for an update, the stored one before it.
Check = Callable[[Object], list[FieldError]]
UpdateCheck = Callable[[Object, Object], list[FieldError]]
#: Checks of a new object and of an update, and those of writes through subresources.
Entry = tuple[Check, UpdateCheck, Mapping[str, UpdateCheck]]


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
