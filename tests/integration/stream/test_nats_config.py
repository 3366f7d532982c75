"""`atoll nats-config`: a server for a site on several machines, and the credentials of each process."""

from __future__ import annotations

import asyncio
import signal
import stat
from pathlib import Path

import msgspec
import pytest

from atoll.cli.atoll import main
from atoll.cli.atoll.event_key import rotate
from atoll.events.stream_file import read_stream_file
from atoll.machinery.process.pki import make_ca, make_serving
from atoll.machinery.process.private_files import write_pair
from atoll.machinery.stream.connection import Connection, Unavailable
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.server.embedded import find_binary
from atoll.standalone.site.layout import Ports
from harness.waits import until


def configured(directory: Path, *flags: str) -> int:
    return main.run(["nats-config", "--directory", str(directory), *flags])


async def test_every_user_connects_with_his_file_over_tls_also_once_passwords_were_replaced(tmp_path: Path) -> None:
    ca = make_ca("nats")
    write_pair(tmp_path, "server", make_serving(ca, ["127.0.0.1"]))
    (tmp_path / "ca.crt").write_bytes(ca.certificate)
    ports = Ports("127.0.0.1")
    there, port, leaf = tmp_path / "nats", ports.reserve(0), ports.reserve(0)
    flags = (
        "--shards",
        "root,eu-1",
        "--readers",
        "proxy-0",
        "--edge",
        "edge-0",
        "--subscribers",
        "ops",
        "--event-gateways",
        "gateway-0",
        "--regions",
        "region-eu",
        "--leaf-listen",
        f"127.0.0.1:{leaf}",
        "--port",
        str(port),
        "--tls-cert-file",
        str(tmp_path / "server.crt"),
        "--tls-private-key-file",
        str(tmp_path / "server.key"),
        "--tls-ca-file",
        str(tmp_path / "ca.crt"),
    )
    assert configured(there, *flags) == 0
    server = await asyncio.create_subprocess_exec(str(find_binary()), "-c", str(there / "server.conf"))
    try:
        users = ("shard-root", "shard-eu-1", "proxy-0", "edge-0", "ops", "gateway-0", "region-eu")
        found = [read_access(f"tls://127.0.0.1:{port}", str(there / f"nats-{user}.json")) for user in users]
        found += [read_stream_file(there / f"stream-ops.{shard}.json").access for shard in ("root", "eu-1")]
        for access in found:

            async def connected() -> Connection | None:
                try:
                    return await Connection.open(access, "test")  # noqa: B023 - called in this turn
                except Exception:
                    return None

            connection: Connection = await until(connected, f"{access.user} connects")
            await connection.close()
        held = await Connection.open(found[0], "test")
        before = [msgspec.structs.replace(access, source=None) for access in found]
        assert configured(there, *flags, "--new-passwords") == 0
        server.send_signal(signal.SIGHUP)
        async with asyncio.timeout(40):
            await held.closed.wait()
        for access in found[: len(users)]:
            await (await Connection.open(access, "test")).close()
        for access in before[:2]:
            with pytest.raises(Unavailable):
                await Connection.open(access, "test")
        written = msgspec.json.decode((there / "server.conf").read_bytes())
        # A leaf node would be asked about at a gateway, which knows tenants alone.
        assert written["authorization"]["auth_callout"]["auth_users"] == ["gateway-0", "region-eu"]
        assert (written["leafnodes"]["listen"], "tls" in written["leafnodes"]) == (f"127.0.0.1:{leaf}", True)
    finally:
        server.terminate()
        await server.wait()
        ports.close()


def test_passwords_that_were_given_out_stay_when_names_are_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert configured(tmp_path, "--shards", "root") == 0
    before = read_access("nats://x", str(tmp_path / "nats-shard-root.json"))
    assert configured(tmp_path, "--shards", "root,eu-1") == 0
    after = read_access("nats://x", str(tmp_path / "nats-shard-root.json"))
    assert msgspec.structs.replace(after, event_keys=before.event_keys, reader=before.reader) == before
    assert before.for_reading.password == after.for_reading.password
    access = read_access("nats://x", str(tmp_path / "nats-shard-eu-1.json"))
    assert access.password.encode() in (tmp_path / "server.conf").read_bytes()
    assert access.password not in capsys.readouterr().out
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_secret_keys_of_events_are_given_to_their_shard_and_public_ones_to_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert configured(tmp_path, "--shards", "root,eu-1", "--readers", "proxy-0") == 0
    found = {user: read_access("x", str(tmp_path / f"nats-{user}.json")) for user in ("shard-root", "shard-eu-1")}
    proxy = read_access("x", str(tmp_path / "nats-proxy-0.json"))
    public = {user.removeprefix("shard-"): EventKeys(access.signing_keys).announced for user, access in found.items()}
    assert proxy.signing_keys == ()
    for access in (*found.values(), proxy):
        assert access.event_keys == public
        assert access.for_reading.event_keys == public
    assert rotate([str(tmp_path / "nats-shard-root.json")]) == 0
    said = capsys.readouterr().out
    assert rotate([str(tmp_path / "nats-proxy-0.json")]) == 1
    rotated = read_access("x", str(tmp_path / "nats-shard-root.json"))
    added = EventKeys(rotated.signing_keys[1:]).announced[0]
    assert added in said
    assert not [key for key in rotated.signing_keys if key.secret in said]
    assert configured(tmp_path, "--shards", "root,eu-1", "--readers", "proxy-0") == 0
    renewed = read_access("x", str(tmp_path / "nats-proxy-0.json")).event_keys
    assert renewed is not None
    assert renewed["root"] == (*public["root"], added)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--shards", "root,EU"), "'EU' is no name"),
        (("--shards", "root", "--readers", "a.b"), "'a.b' is no name"),
        (("--shards", "root", "--readers", "reader-root"), "'reader-root' is the name of another user"),
        (("--shards", "root", "--readers", "ops", "--subscribers", "ops"), "'ops' is the name of another user"),
        (("--shards", "root", "--subscribers", "operator"), "'operator' is the name of another user"),
        (("--shards", "root", "--event-gateways", "shard-root"), "'shard-root' is the name of another user"),
        (("--shards", "root", "--tls-cert-file", "x"), "go together"),
    ],
)
def test_what_makes_no_server_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert configured(tmp_path / "x", *flags) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
