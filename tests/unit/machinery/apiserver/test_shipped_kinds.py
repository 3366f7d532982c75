"""Kubernetes' kinds are loaded once, and only who can wait is told that they are not."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.catalog.shipped_kinds import KindsPending, ShippedKinds
from atoll.machinery.kinds.kubernetes.schema_names import schema_names

PODS = schema_names()["pods.core"]


async def test_who_can_wait_gets_them_once_they_are_loaded() -> None:
    shipped = ShippedKinds("root")
    shipped.can_wait = True
    with pytest.raises(KindsPending) as pending:
        shipped.of(PODS, "root")
    assert shipped.lacks("root")
    await pending.value.load()
    assert not shipped.lacks("root")
    assert [kind.kind for kind in shipped.of(PODS, "root")] == ["Pod"]


def test_who_cannot_wait_gets_them_at_once() -> None:
    assert [kind.kind for kind in ShippedKinds("root").of(PODS, "root")] == ["Pod"]


@pytest.mark.parametrize("identity", ["", "other"])
def test_another_identity_has_none_and_lacks_none(identity: str) -> None:
    for shipped in (ShippedKinds("root"), ShippedKinds("")):
        shipped.can_wait = True
        assert not shipped.lacks(identity)
        assert shipped.of(PODS, identity) == ()
