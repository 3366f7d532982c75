"""Secrets are nowhere in clear text: not in the store and its free pages, not on the stream, not in any log.

The same search must find them in a shard without sealing.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import pytest

from harness.clients.api import APPLY, Api, eventually
from harness.clients.kubectl import Kubectl
from harness.clients.nats_subscriber import Operator
from harness.environment import SERVER_PATH
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

SECRETS = "/api/v1/namespaces/default/secrets"
COUNT = 200
#: Python runs it in the child before anything else.
UNSEALED = """
import msgspec
import atoll.standalone.runner as start
sealing = start.store_options
start.store_options = lambda config: msgspec.structs.replace(sealing(config), sealed_types=())
"""


def forms(needle: bytes) -> list[bytes]:
    """A text as it is, and its base64 forms at the three possible offsets."""
    found = [needle]
    for offset in range(3):
        whole = base64.b64encode(b"\0" * offset + needle).rstrip(b"=")
        # The first characters contain bits of the bytes before, the last of those after.
        found.append(whole[(0, 2, 3)[offset] : -1])
    return found


def hits(directory: Path, needle: bytes) -> set[str]:
    """The first directory or file below `directory` of every file that holds the needle in one of its forms."""
    found = set()
    for path in directory.rglob("*"):
        if path.is_file() and any(form in path.read_bytes() for form in forms(needle)):
            relative = path.relative_to(directory)
            found.add("/".join(relative.parts[:2]))
    return found


def test_the_search_finds_a_text_wherever_base64_began() -> None:
    needle = b"canary-0123456789abcdef"
    for before in (b"", b"x", b"xy", b"xyz"):
        encoded = base64.b64encode(before + needle + b"tail")
        assert any(form in encoded for form in forms(needle))


def write_by_api(api: Api, needle: str) -> None:
    """Create, update and delete; also rejected requests, since errors may quote their content."""
    for number in range(COUNT):
        name, value = f"s{number}", f"{needle}-{number}"
        path = f"{SECRETS}/{name}"
        api.post(SECRETS, {"metadata": {"name": name}, "stringData": {"k": value}})
        if number % 4 == 0:
            api.patch(path, {"stringData": {"k": f"{value}-again"}})
        if number % 4 == 1:
            api.put(path, {"metadata": {"name": name}, "data": {"k": base64.b64encode(value.encode() * 20).decode()}})
        if number % 4 == 2:
            body = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{more: {value}-more}}\n"
            api.patch(f"{path}?fieldManager=me", body.encode(), APPLY)
        if number % 2:
            api.delete(path)
    api.send("POST", SECRETS, {"metadata": {"name": "bad"}, "data": {"k": f"{needle}: no base64"}})
    api.send("POST", SECRETS, {"metadata": {"name": "Bad Name"}, "stringData": {"k": needle}})
    api.send("POST", SECRETS, {"metadata": {"name": "bad"}, "stringData": {"no key!": needle}})
    api.send("POST", SECRETS, f'{{"stringData": {{"k": "{needle}"'.encode(), kind="application/json")


def write_by_kubectl(kubectl: Kubectl, needle: str) -> None:
    kubectl.ok("create", "secret", "generic", "typed", f"--from-literal=k={needle}-typed")
    manifest = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: applied}}\nstringData: {{k: {needle}-applied}}\n"
    kubectl.ok("apply", "-f", "-", stdin=manifest)
    kubectl.ok("apply", "-f", "-", stdin=manifest.replace("-applied}", "-changed}"))
    kubectl.ok("patch", "secret", "typed", "-p", f'{{"stringData":{{"k":"{needle}-patched"}}}}')
    kubectl.ok("delete", "secret", "typed")


@pytest.mark.parametrize("sealed", every(2, [True, False]), ids=["sealed", "unsealed"])
async def test_no_secret_is_found_in_clear_in_anything_that_is_written(tmp_path: Path, sealed: bool) -> None:
    needle, environment = f"canary-{secrets.token_hex(12)}", {}
    if not sealed:
        (tmp_path / "patch").mkdir()
        (tmp_path / "patch" / "sitecustomize.py").write_text(UNSEALED)
        environment = {"PYTHONPATH": f"{tmp_path / 'patch'}:{SERVER_PATH}"}
    there = tmp_path / "there"
    flags = ("--audit-log-path", str(there / "audit.log"), "--log-level", "debug")
    async with ShardProcess(there, *flags, environment=environment) as shard:
        api = Api(shard, "root")
        write_by_api(api, needle)
        write_by_kubectl(Kubectl(tmp_path / "person", shard.kubeconfig), needle)
        api.post(SECRETS, {"metadata": {"name": "last"}, "stringData": {"k": needle}})
        async with Operator(shard) as operator:
            await operator.consume("atoll.changes.root.core.core.secrets.root")
            heard = await operator.until("last")
        assert len(heard) > COUNT * 2, "the stream has had all of them"
    assert {path.name for path in there.iterdir()} >= {"atoll", "audit.log", "shard.err", "shard.out"}
    assert len((there / "audit.log").read_text().splitlines()) > COUNT * 2
    if not sealed:
        assert hits(there, needle.encode()) == {"atoll/store", "atoll/nats"}
        return
    assert hits(there, needle.encode()) == set()
    rotated = atoll("rotate", "--root-directory", str(shard.root), "--allow-any-filesystem")
    assert (rotated.code, "key 2 seals from now on" in rotated.stdout) == (0, True), rotated.stderr
    async with shard:
        api = Api(shard, "root")
        value = api.get(f"{SECRETS}/s8").json["data"]["k"]
        assert base64.b64decode(value).decode() == f"{needle}-8-again"
        assert len(api.get(SECRETS).json["items"]) >= COUNT // 2
        api.patch(f"{SECRETS}/s8", {"stringData": {"k": f"{needle}-rotated"}})
        with api.watch(f"{SECRETS}?watch=1&resourceVersion={heard[0].revision}&timeoutSeconds=5") as events:
            # History is read with its own key, beside objects sealed with the new key.
            seen = events.take(COUNT)
        assert base64.b64decode(seen[0].object["data"]["k"]).decode().startswith(needle)
        eventually(lambda: atoll("fsck", "--root-directory", str(shard.root)).code == 0, "a sound store")
    assert hits(there, needle.encode()) == set()
