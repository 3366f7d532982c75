"""A small disk that fills up: errors that name the remedy, readiness, and recovery by deletions alone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.clients.api import Answer, Api, configmap, eventually
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess
from harness.servers.site import Site
from harness.servers.small_disk import fill as fill_disk
from harness.servers.small_disk import leave, small_disk

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
ANYWHERE = ("--allow-any-filesystem", "true")
DISK_BYTES = 8 << 30
#: Room for a part of what a commit writes.
SPARE_BLOCKS = range(0, 60, 5)
_FAILED = re.compile(rb"^atoll_store_failed_commits_total (\d+)", re.MULTILINE)
REFUSED = "the shard's storage is full: only deletions and renewals of leases are accepted"


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, of so many MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(directory)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def create_large(api: Api, number: int) -> Answer:
    """Create a ConfigMap of 0.9 MB."""
    body = {**configmap(f"large-{number}"), "data": {"a": f"{number:06}" * 150_000}}
    return api.post(CONFIGMAPS, body, expect=0)


def is_created(api: Api, number: int) -> bool:
    return create_large(api, number).code == 201


def fill(api: Api, first: int = 0) -> int:
    """Create large ConfigMaps from a number on until one is refused. Return how many there are."""
    for count in range(first, 400):
        answer = create_large(api, count)
        if answer.code != 201:
            assert (answer.code, answer.message) == (507, REFUSED)
            return count
    raise AssertionError("the disk does not fill up")


@pytest.mark.long
@pytest.mark.parametrize("disk", [352], indirect=True)
def test_a_full_disk_recovers_by_deletions_alone(disk: Path) -> None:
    with ShardProcess(disk, *ANYWHERE) as shard:
        api = Api(shard, "root")
        lease = api.post(LEASES, {"metadata": {"name": "held"}, "spec": {"holderIdentity": "a"}}).json
        count = fill(api)
        assert count > 10

        def is_listed() -> bool:
            # Compaction may have made room since.
            nonlocal count
            count = fill(api, count)
            code, listed = shard.get("/readyz")
            counted = shard.get("/readyz/store-space", "shard-admin")[0]
            return (code, b"[-]store-space failed (not counted)" in listed, counted) == (200, True, 500)

        eventually(is_listed, "the full disk is listed and not counted")
        assert shard.get("/livez") == (200, b"ok")
        count = fill(api, count)
        again = api.post(LEASES, {"metadata": {"name": "another"}, "spec": {"holderIdentity": "a"}}, expect=507)
        assert (again.code, again.message) == (507, REFUSED)
        lease["spec"]["holderIdentity"] = "b"
        assert api.put(f"{LEASES}/held", lease).code == 200
        for number in range(count):
            assert api.delete(f"{CONFIGMAPS}/large-{number}").code == 200
        # Not only once: compaction runs whenever the disk is full again.
        for number in range(count // 2):
            eventually(partial(is_created, api, number), "room", timeout_s=60)
        eventually(lambda: shard.get("/readyz") == (200, b"ok"), "readiness", timeout_s=60)


@pytest.mark.long
@pytest.mark.parametrize("disk", [400], indirect=True)
def test_a_full_disk_of_several_shards_recovers_by_deletions_alone(disk: Path) -> None:
    with Site(disk, shards=2) as site:
        api = site.root.api("root")
        count = fill(api)
        assert count > 10
        for number in range(count):
            assert api.delete(f"{CONFIGMAPS}/large-{number}").code == 200
        for number in range(count // 2):
            eventually(partial(is_created, api, number), "room", timeout_s=60)


@pytest.mark.long
def test_a_shard_serves_on_a_disk_without_a_byte_left_and_what_it_acknowledged_is_there_with_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk, ShardProcess(disk / "shard") as shard:
        api, made = Api(shard, "root").at_once(), 0
        for blocks in SPARE_BLOCKS:
            leave(disk, 0.9)
            eventually(partial(is_created, api, made), "room")
            made += 1
            # The room is measured once a second: until then pages are written, and some of them find a place.
            fill_disk(disk, spare=blocks)
            assert create_large(api, made).code == 507
            assert api.get(f"{CONFIGMAPS}/large-{made - 1}").code == 200
        assert int(_FAILED.findall(shard.get("/metrics", "shard-admin")[1])[0]) > 0, "the store tried to write"
        shard.kill()
        leave(disk, 0.9)
        shard.start()
        found = {each["metadata"]["name"] for each in api.get(CONFIGMAPS).json["items"]}
        assert {each for each in found if each.startswith("large-")} == {f"large-{number}" for number in range(made)}
        assert is_created(api, made)


@pytest.mark.long
@pytest.mark.parametrize("disk", [352], indirect=True)
def test_a_start_without_a_byte_left_ends_in_one_sentence(disk: Path) -> None:
    with ShardProcess(disk / "shard", *ANYWHERE) as shard:
        shard.stop()
        fill_disk(disk)
        refused = atoll("start", "--root-directory", str(shard.root), "--secure-port", "0", *ANYWHERE)
    assert refused.code == 1
    assert refused.stderr.splitlines()[-1] == (
        f"atoll: the disk of {shard.root} has room for 0 MB and at least 256 MB are needed: free some space"
    )
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("disk", [128], indirect=True)
def test_a_first_start_without_room_ends_in_one_sentence(disk: Path) -> None:
    refused = atoll("start", "--root-directory", str(disk / "atoll"), "--secure-port", "0", *ANYWHERE)
    assert refused.code == 1
    assert refused.stderr.splitlines()[-1].startswith(f"atoll: the disk of {disk / 'atoll'} has room for ")
    assert refused.stderr.endswith(" MB and at least 256 MB are needed: free some space\n")
    assert "Traceback" not in refused.stderr
