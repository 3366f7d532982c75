"""`atoll doctor`: facts about a machine, one line each, and an exit code that a script can use."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from atoll.cli.atoll import doctor
from atoll.cli.atoll.doctor_settings import NO_AUDIT_LOG
from atoll.cli.atoll.finding import Finding
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.lmdb_store import open_store
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options
from harness.data import stores
from harness.data.stores import HandClock, create


def config(root: Path, **changes: object) -> ShardConfig:
    settings = {"root_directory": str(root), "secure_port": free_port(), "allow_any_filesystem": True, **changes}
    return ShardConfig(**settings)  # type: ignore[arg-type]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def flags(root: Path, port: int) -> list[str]:
    return ["--root-directory", str(root), "--secure-port", str(port), "--allow-any-filesystem"]


def levels(findings: object) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings}  # type: ignore[attr-defined]


def test_a_fresh_machine_passes_and_nothing_is_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = doctor.run(flags(tmp_path / "atoll", free_port()))
    lines = capsys.readouterr().out.splitlines()
    names = [line[5:].partition(":")[0] for line in lines]
    assert names[:7] == ["file-system", "disk-space", "disk-sync", "clock", "clock-drift", "cores", "python"]
    assert {"lmdb", "nats-server", "kubectl", "kubectl-plugins", "permissions", "port"} <= set(names)
    assert all(line.split()[0] in {"ok", "warn"} for line in lines)
    assert lines.count(str(NO_AUDIT_LOG)) == 1
    assert code == 0
    assert list(tmp_path.iterdir()) == []


def test_one_failure_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert doctor.run(flags(tmp_path / "atoll", number)) == 1
    assert f"fail port: 127.0.0.1:{number} is taken" in capsys.readouterr().out


def test_a_port_that_the_shard_itself_holds_is_fine(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = config(tmp_path, secure_port=taken.getsockname()[1])
        (tmp_path / "secure-port").write_text(f"{settings.secure_port}\n")
        (tmp_path / "store").mkdir()
        assert levels(doctor.port(settings)) == {"port": "fail"}
        fd = filesystem.own(tmp_path / "store")
        assert levels(doctor.port(settings)) == {"port": "ok"}
        os.close(fd)


def test_the_port_looked_at_is_that_of_the_last_start_unless_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    plain = ["--root-directory", str(tmp_path), "--allow-any-filesystem"]
    last, named = free_port(), free_port()
    for text, expected in (("nonsense", 6443), ("99999", 6443), (f"{last}\n", last)):
        (tmp_path / "secure-port").write_text(text)
        (tmp_path / "secure-port").chmod(0o600)
        doctor.run(plain)
        assert f"port: 127.0.0.1:{expected} is" in capsys.readouterr().out
    doctor.run([*plain, "--secure-port", str(named)])
    assert f"port: 127.0.0.1:{named} is" in capsys.readouterr().out


def test_a_temporary_file_system_fails_unless_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("tmpfs / tmpfs rw 0 0\n")
    monkeypatch.setattr(filesystem.require_local, "__defaults__", (mounts,))
    assert levels(doctor.disk(config(tmp_path)))["file-system"] == "warn"
    assert levels(doctor.disk(config(tmp_path, allow_any_filesystem=False)))["file-system"] == "fail"


def test_a_disk_that_is_nearly_full_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "free_bytes", lambda directory: 100 << 20)
    assert levels(doctor.disk(config(tmp_path)))["disk-space"] == "fail"
    monkeypatch.setattr(filesystem, "free_bytes", lambda directory: 1 << 30)
    assert levels(doctor.disk(config(tmp_path)))["disk-space"] == "warn"


def test_a_disk_that_takes_no_byte_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    assert levels(doctor.disk(config(tmp_path)))["disk-sync"] == "fail"


def test_a_disk_that_is_slow_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "measure_sync_s", lambda directory: 0.2)
    assert Finding("warn", "disk-sync", f"200.00 ms for a durable write of 4 KiB in {tmp_path}") in doctor.disk(
        config(tmp_path)
    )


def test_a_directory_that_may_not_be_written_is_a_finding_and_not_the_end(tmp_path: Path) -> None:
    def refused(config: ShardConfig) -> list[Finding]:
        raise PermissionError("may not")

    assert list(doctor._safely(refused, config(tmp_path))) == [Finding("fail", "refused", "may not")]


def test_a_store_that_does_not_open_is_a_finding_and_not_the_end(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"something else" * 4096)
    assert levels(doctor._safely(doctor.clock, config(tmp_path)))["clock"] == "fail"


def test_a_wall_clock_that_runs_away_is_seen() -> None:
    wall, steady = iter([100.0, 100.5]), iter([7.0, 7.1])
    assert doctor.measured_drift_s(lambda: next(wall), lambda: next(steady)) == pytest.approx(0.4)


@pytest.mark.parametrize(("ahead_s", "level"), [(-60, "ok"), (60, "warn"), (3600, "fail")])
async def test_a_clock_behind_the_store_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int, level: str
) -> None:
    clock = HandClock()
    store = open_store(stores.store_options(tmp_path / "store"), clock=clock.clock())
    await create(store, "a")
    await store.close()
    monkeypatch.setattr("atoll.cli.atoll.doctor.time.time", lambda: clock.wall_s - ahead_s)
    assert levels(doctor.clock(config(tmp_path)))["clock-store"] == level


def test_what_others_may_read_fails_by_name(tmp_path: Path) -> None:
    root = tmp_path / "atoll"
    (root / "store").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    secret, data, public = root / "sa.key", root / "store" / "data.mdb", root / "apiserver.crt"
    for file in (secret, data):
        file.touch(mode=0o600)
    public.touch()
    public.chmod(0o644)
    settings = config(root)
    assert levels(doctor.permissions(settings)) == {"permissions": "ok"}
    for path, mode, right in ((secret, 0o640, 0o600), (data, 0o604, 0o600), (root, 0o750, 0o700)):
        path.chmod(mode)
        assert list(doctor.permissions(settings)) == [
            Finding("fail", "permissions", f"{path} is {mode:04o}, others may use it")
        ]
        path.chmod(right)


def test_a_nats_server_that_is_too_old_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.9.0'\n")
    old.chmod(0o755)
    monkeypatch.setattr(doctor, "find_binary", lambda: old)
    assert levels(doctor.versions(config(tmp_path)))["nats-server"] == "fail"


def test_no_kubectl_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = levels(doctor.versions(config(tmp_path)))
    assert (found["kubectl"], found["kubectl-plugins"]) == ("warn", "warn")


def test_the_store_looked_at_is_the_one_that_start_uses(tmp_path: Path) -> None:
    assert store_options(config(tmp_path)).directory == str(tmp_path / "store")
