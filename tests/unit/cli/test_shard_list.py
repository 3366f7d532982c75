"""`kubectl atoll shards`: what is shown of a shard, and what is said to need somebody."""

from __future__ import annotations

from atoll.cli.kubectl.shard_list import Answers, needs, row
from atoll.machinery.kcp.sharding.shards import Load, heartbeat_status
from atoll.machinery.meta.objects import Object

NOW_S, DAY_S = 1_790_000_000.0, 86_400.0


def shard(beat_s: float = NOW_S - 4, used: int = 10) -> Object:
    made: Object = {"metadata": {"name": "eu-1", "labels": {"region": "eu"}}}
    return {**made, "status": heartbeat_status(made, Load(3, 40, used << 20, 100 << 20, beat_s))}


def series(*, days: float = 200, behind: float = 0, age_s: float = 0) -> dict[str, dict[str, float]]:
    return {
        "atoll_stream_lag_events": {"": 7},
        "atoll_stream_lag_seconds": {"": age_s},
        "atoll_replication_lag_messages": {"root": behind, "us-1": 0},
        "atoll_replication_lag_seconds": {"root": behind, "us-1": 0},
        "atoll_certificate_expiration_timestamp_seconds": {
            "tls-cert-file": NOW_S + days * DAY_S + 1,
            "client-ca-file": NOW_S + 900 * DAY_S,
        },
    }


def test_a_healthy_shard_is_one_line_and_needs_nobody() -> None:
    said = Answers((), series())
    line = row(shard(), said, NOW_S)
    assert line == (
        "eu-1",
        "eu",
        "Ready",
        "4s ago",
        "3",
        "40",
        "10% of 100 MiB",
        "7 events",
        "200 days (tls-cert-file)",
        "nothing",
    )
    assert list(needs(shard(), said, NOW_S)) == []


def test_each_trouble_is_named() -> None:
    said = Answers(("store-space",), series(days=12, behind=31, age_s=44))
    assert row(shard(), said, NOW_S)[2::7] == ("Failing(store-space)", "31 of root")
    assert list(needs(shard(NOW_S - 90, used=91), said, NOW_S)) == [
        "eu-1: its health check store-space fails",
        "eu-1 does not write its heartbeat: does it reach the root shard?",
        "eu-1: its store is 91% full",
        "eu-1: a certificate of tls-cert-file ends in 12 days",
        "eu-1 lacks what root wrote in the last 31 s",
        "eu-1: its changes wait for NATS since 44 s",
    ]


def test_what_is_not_answered_is_unknown_and_not_good() -> None:
    assert row(shard(), Answers(None, None), NOW_S)[2] == "Unreachable"
    assert row(shard(), Answers((), None), NOW_S)[7:] == ("?", "?", "?")
    assert list(needs(shard(), Answers(None, None), NOW_S)) == [
        "eu-1 does not answer: look at its process and its machine"
    ]


def test_a_shard_without_a_site_writes_no_heartbeat_and_needs_nobody_for_that() -> None:
    never: Object = {"metadata": {"name": "root"}}
    store: dict[str, dict[str, float]] = {
        "atoll_store_used_bytes": {"": 10 << 20},
        "atoll_store_room_bytes": {"": 90 << 20},
    }
    alone = Answers((), {**series(), **store}, in_site=False)
    assert row(never, alone, NOW_S)[:7] == ("root", "-", "Ready", "-", "?", "?", "10% of 100 MiB")
    assert list(needs(never, alone, NOW_S)) == []
    full = Answers((), {**store, "atoll_store_room_bytes": {"": 1 << 20}}, in_site=False)
    assert list(needs(never, full, NOW_S)) == ["root: its store is 90% full"]
    assert list(needs(never, Answers((), {}), NOW_S)) == [
        "root does not write its heartbeat: does it reach the root shard?"
    ]
