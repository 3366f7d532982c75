"""GET of one object: its stored bytes, spliced and sent."""

from __future__ import annotations

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, look_up
from atoll.machinery.apiserver.call.options import resource_version
from atoll.machinery.apiserver.rest.present import single
from atoll.machinery.storage.contract import Snapshot


def get(call: Call, snapshot: Snapshot) -> Reply:
    """Answer with the object as it stands. Raises NotFound.

    A resourceVersion asks for a state at least that new; the caller waited for it already.
    """
    record = look_up(call, snapshot, call.info.name)
    if record is None:
        raise errors.not_found(call.kind, call.info.name)
    return single(call, record.value)


def wanted_revision(call: Call) -> int:
    """The revision a read must not be older than; 0 where any will do."""
    return max(resource_version(call.info.query), 0) if call.info.query else 0
