"""Settings that a cache server rejects, and the kinds that it serves."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.cacheserver.config import CacheServerConfig
from atoll.cacheserver.kinds import CACHE, VERBS, cache_kinds, row_type
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import API_EXPORTS, CLUSTER_ROLES
from atoll.virtualworkspaces.cache_kinds import exporter_of
from harness.servers.processes import atoll

WHOLE: dict[str, Any] = {
    "tls_cert_file": "a",
    "tls_private_key_file": "b",
    "client_ca_file": "c",
    "nats_url": "nats://x",
}


def test_with_everything_it_needs_it_is_content() -> None:
    CacheServerConfig(**WHOLE).check_complete()


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_what_has_no_default_must_be_told(name: str) -> None:
    with pytest.raises(ValueError, match=name.replace("_", "-")):
        CacheServerConfig(**{**WHOLE, name: ""}).check_complete()


@pytest.mark.parametrize(
    "wrong", [{"secure_port": 70000}, {"log_level": "loud"}, {"bind_address": "here"}, {"list_window": 0}], ids=str
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("_", "-")):
        CacheServerConfig(**wrong)  # type: ignore[arg-type]


def test_the_command_says_what_is_missing_in_one_line() -> None:
    done = atoll("cache-server", "--nats-url", "nats://127.0.0.1:1")
    assert (done.code, done.stderr) == (1, "atoll: tls-cert-file must not be empty\n")


def test_no_kind_is_created_and_every_one_lies_under_the_one_identity() -> None:
    kinds = cache_kinds()
    assert {kind.verbs for kind in kinds} == {VERBS}
    assert "create" not in VERBS
    assert {kind.identity for kind in kinds} == {CACHE}
    assert not any(kind.subresources for kind in kinds)
    assert len({kind.type for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("type", "exporter"),
    [
        (ResourceType("tenancy.kcp.io", "workspaces"), "tenancy.kcp.io"),
        (ResourceType("core.kcp.io", "shards"), "shards.core.kcp.io"),
        (ResourceType("topology.kcp.io", "partitions"), "topology.kcp.io"),
        (ResourceType("cache.kcp.io", "clustercachedresources"), ""),
        (API_EXPORTS, ""),
        (CLUSTER_ROLES, ""),
    ],
    ids=str,
)
def test_whose_identity_a_kind_counts_under(type: ResourceType, exporter: str) -> None:
    assert exporter_of(row_type(type)) == exporter
