"""What another syncer of the cluster keeps: as long as its Lease is renewed, by a clock that only runs forward."""

from __future__ import annotations

import time
from typing import Any

import pytest

from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import SYNCED_BY
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.syncer.others import OtherSyncers


class Cluster:
    """A cluster with one Lease, of the syncer of `older`."""

    def __init__(self) -> None:
        self.holder, self.revision, self.reads = "pod", 1, 0

    async def get(self, resource: Resource, name: str, namespace: str) -> Object:
        self.reads += 1
        if (name, namespace) != ("kubestellar-syncer-older", "default"):
            raise NotFound(name)
        # Its clock is wrong by years.
        spec = {"holderIdentity": self.holder, "leaseDurationSeconds": 60, "renewTime": "2001-01-01T00:00:00.000000Z"}
        return {"metadata": {"name": name, "resourceVersion": str(self.revision)}, "spec": spec}


def labelled(uid: str) -> Object:
    return {"metadata": {"name": "c", "labels": {SYNCED_BY: uid}}}


async def test_an_object_is_free_once_the_lease_of_its_syncer_was_given_up_or_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, now = Cluster(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    client: Any = cluster
    others = OtherSyncers(client, "own")
    for each in ({"metadata": {"name": "c"}}, labelled("own")):
        assert await others.keeper(each) == ""
    assert cluster.reads == 0, "nobody is asked about what is ours, or nobody's"
    assert await others.keeper(labelled("gone")) == ""
    for _ in range(3):
        assert await others.keeper(labelled("older")) == "older"
        now[0] += 59.0
        cluster.revision += 1
    assert await others.keeper(labelled("older")) == "older"
    now[0] += 61.0
    assert await others.keeper(labelled("older")) == ""
    cluster.revision += 1
    assert await others.keeper(labelled("older")) == "older"
    cluster.holder = ""
    assert await others.keeper(labelled("older")) == ""
