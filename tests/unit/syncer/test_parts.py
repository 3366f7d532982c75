"""The parts of a syncer that need no server: rates, the age of tokens, status patches, settings, flags."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from atoll.cli.atoll import syncer as command
from atoll.machinery.edge.applied import ApplyRecord
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.syncer.credentials import is_due
from atoll.syncer.rate import RateLimit
from atoll.syncer.returns import difference
from atoll.syncer.state import State

REF = ObjectRef("", "configmaps", "default", "c")


def token(**claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{payload}.signature"


def test_requests_come_in_a_burst_and_then_at_their_rate() -> None:
    now = 100.0
    limit = RateLimit(10.0, 5, lambda: now)
    now += 60.0
    delays = [limit.delay_s() for _ in range(8)]
    assert delays[:5] == [0.0] * 5
    assert delays[5:] == pytest.approx([0.1, 0.2, 0.3])


def test_a_token_is_due_after_four_fifths_of_its_life_by_the_clock_that_is_asked() -> None:
    issued = token(iat=1000, exp=2000)
    assert not is_due(issued, 1799.0)
    assert is_due(issued, 1801.0)
    for endless in ("", "opaque", token(iat=1000), "a.b.c"):
        assert not is_due(endless, 1e12)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"a": 1}),
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 3}}),
        ({"conditions": [{"type": "A"}, {"type": "B"}]}, {"conditions": [{"type": "B"}]}),
        ({"a": {"b": 1}}, {"a": [1]}),
        ({"a": 0}, {"a": False}),
        ({}, {"a": {}}),
    ],
)
def test_the_patch_of_a_status_makes_one_of_the_other(before: object, after: object) -> None:
    patched = merge_patch({"status": before}, {"status": difference(before, after)})
    assert json.dumps(patched["status"]) == json.dumps(after)


def test_what_is_remembered_is_of_one_cluster_and_one_sync_target(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first = State("target", "edge", path)
    first.number, first.kinds = 7, {("", "configmaps", "v1")}
    first.records[REF], first.copies[REF] = ApplyRecord("a", "b"), "v1"
    first.save()
    again = State("target", "edge", path)
    assert (again.number, again.kinds, again.records, again.copies) == (7, first.kinds, first.records, first.copies)
    assert again.identity == first.identity
    for other in (State("target", "another edge", path), State("another target", "edge", path)):
        assert (other.number, other.kinds, other.records, other.copies) == (0, None, {}, {})
        assert other.identity != first.identity
    path.write_bytes(b"{")
    assert State("target", "edge", path).number == 0


def test_the_flags_of_other_syncers_manifests_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--from-kubeconfig=/f", "--sync-target-name=n", "--sync-target-uid=u", "--qps=20", "--burst=30"]
    for verbosity in (["-v=3"], ["-v", "3"], ["--v=3"]):
        assert command.run([*flags, *verbosity, "--print-config"]) == 0
        assert "v: 3\n" in capsys.readouterr().out
    assert command.run(["--sync-target-name=n", "--sync-target-uid=u"]) == 1
    assert "from-kubeconfig must not be empty" in capsys.readouterr().err
