"""The target of an in-process write, and its Call under the loopback identity.

`loopback` and `batch` plan every write from one. Invariant: nothing but the absence of HTTP tells such a Call from a
client's.
"""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import MASTERS, User

LOOPBACK_USER = User("system:apiserver", (MASTERS,))
_EMPTY: MappingProxyType[str, str] = MappingProxyType({})


class Target(msgspec.Struct, frozen=True):
    """The object that a loopback write addresses: kind, cluster, namespace, name, subresource."""

    kind: Kind
    cluster: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def make_call(target: Target, verb: str, obj: Object | None, manager: str, *, whole: bool = False) -> Call:
    """Return a Call under the loopback identity."""
    kind = target.kind
    info = RequestInfo(
        "LOOPBACK",
        target.cluster,
        "",
        verb,
        _EMPTY,
        is_resource=True,
        group=kind.group,
        version=kind.version,
        resource=kind.plural,
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
    )
    return Call(
        info=info,
        user=LOOPBACK_USER,
        cluster=target.cluster,
        kind=kind,
        obj=obj,
        user_agent=manager,
        now=times.now(),
        whole=whole,
        warnings=[],
    )
