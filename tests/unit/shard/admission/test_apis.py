"""Admission of APIExports and APIBindings, where a plug-in guards what RBAC happens to guard as well."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.status import Forbidden
from atoll.machinery.meta.user import AUTHENTICATED, MASTERS, User
from atoll.shard.admission.apiexports import ApiExports
from harness.models.rbac_snapshot import FakeStore

Object = dict[str, Any]
TENANT, SYSTEM = User("alice", (AUTHENTICATED,)), User("loopback", (MASTERS,))
KINDS: dict[str, Kind] = {kind.version: kind for kind in system_kinds() if kind.kind == "APIExport"}
VERSIONS = sorted(KINDS)


def export(version: str, identity: str = "") -> Object:
    status = {"identityHash": identity} if identity else {}
    return {
        "apiVersion": f"apis.kcp.io/{version}",
        "kind": "APIExport",
        "metadata": {"name": "a"},
        "spec": {},
        "status": status,
    }


def validate_change(version: str, user: User, before: str, now: str, *, whole: bool = False) -> None:
    kind = KINDS[version]
    target = f"/apis/apis.kcp.io/{version}/apiexports/a/status".encode()
    call = Call(info=parse("PUT", target), user=user, cluster="here", kind=kind, whole=whole)
    review = Review(
        call=call,
        group_resource=("apis.kcp.io", "apiexports"),
        operation="update",
        obj=export(version, now),
        old=export(version, before),
        view=FakeStore(),
        subresource="status",
    )
    ApiExports().validate(review)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_system_sets_an_identity(version: str) -> None:
    validate_change(version, SYSTEM, "", "ab")
    with pytest.raises(Forbidden, match=r"status\.identityHash: Forbidden: is set by the system"):
        validate_change(version, TENANT, "", "ab")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("now", ["cd", ""])
def test_an_identity_is_changed_by_masters_alone(version: str, now: str) -> None:
    with pytest.raises(Forbidden, match=r"status\.identityHash: Invalid value: .*: field is immutable"):
        validate_change(version, TENANT, "ab", now)
    validate_change(version, TENANT, "ab", "ab")
    validate_change(version, SYSTEM, "ab", now)


def test_the_systems_own_builders_bring_whole_objects() -> None:
    validate_change("v1alpha2", SYSTEM, "ab", "cd", whole=True)
