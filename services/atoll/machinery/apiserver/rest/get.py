"""GET of one object, from its stored bytes."""

from __future__ import annotations

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, look_up
from atoll.machinery.apiserver.call.options import resource_version
from atoll.machinery.apiserver.rest.present import single
from atoll.machinery.storage.contract import Snapshot


def get(call: Call, snapshot: Snapshot) -> Reply:
    """Return the object at the snapshot's revision. Raises NotFound.

    A resourceVersion is a minimum; the caller has already waited for it.
    """
    record = look_up(call, snapshot, call.info.name)
    if record is None:
        raise errors.not_found(call.kind, call.info.name)
    return single(call, record.value)


def wanted_revision(call: Call) -> int:
    """Return the minimum revision of a read; 0 for any."""
    return max(resource_version(call.info.query), 0) if call.info.query else 0
