"""`atoll doctor`: checks whether this machine can hold a store and serve it, one line for each finding.

Called by `main`; each check is a function that returns findings; those of settings are in `doctor_settings`, those of
sockets in `doctor_sockets`, those of a running server in `doctor_server` and `doctor_metrics`. Invariant: nothing is
changed, except that a temporary file measures the duration of a durable write.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from atoll.cli.atoll import doctor_metrics, doctor_server, doctor_settings, doctor_sockets
from atoll.cli.atoll.doctor_server import Server
from atoll.cli.atoll.finding import FAIL, OK, WARN, Finding
from atoll.cli.atoll.output import fail
from atoll.machinery.client.target import KubeconfigError
from atoll.machinery.process import config as settings
from atoll.machinery.process import host_resources
from atoll.machinery.process.listen_address import PORT_FILE
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.stream.connection import TooOld, check_version
from atoll.machinery.stream.server.embedded import ServerFailed, find_binary
from atoll.shard.config import ShardConfig
from atoll.standalone import worker_count
from atoll.standalone.runner import store_options
from atoll.standalone.site.processes import StartConfig
from atoll.standalone.worker_pool import SOCKET

MIB, GIB = 1 << 20, 1 << 30
FREE_WARN_BYTES = 4 * GIB
#: A durable write above this is noticeable to users; SSDs need 1 to 5 ms.
SYNC_WARN_S = 0.025
CLOCK_WINDOW_S, CLOCK_DRIFT_S = 0.05, 0.01
#: A wall clock so far from the store's own revisions is refused by a running shard.
CLOCK_STEP_S = 300.0
YEARS = range(2025, 2100)
COMMAND_TIMEOUT_S = 20.0
PLUGINS = ("kubectl-ws", "kubectl-create-workspace", "kubectl-kcp", "kubectl-atoll")
MAX_PORT = 65535
SETTINGS = (
    doctor_settings.users,
    doctor_settings.audit,
    doctor_settings.outbound,
    doctor_settings.serving,
    doctor_settings.stream,
)
#: Of what runs on this machine with these settings.
SOCKETS = (doctor_sockets.listeners, doctor_sockets.nats)
#: Of a server that a kubeconfig names.
SERVER = (
    doctor_server.transport,
    doctor_server.strangers,
    doctor_server.powerless,
    doctor_server.profiling,
    doctor_server.health,
    doctor_server.times,
    doctor_metrics.measured,
)


def run(arguments: Sequence[str]) -> int:
    """Print every finding. Return 1 if one of them is a failure."""
    try:
        config, server = _subjects(arguments)
    except (settings.ConfigError, KubeconfigError) as error:
        return fail(str(error))
    found = [_safely(check, config) for check in (disk, clock, cores, versions, permissions, port, *SETTINGS, *SOCKETS)]
    if server is not None:
        found += [_safely(check, server) for check in SERVER]
    failed = False
    for finding in _without_unset_audit_log(chain.from_iterable(found)):
        failed = failed or finding.level == FAIL
        sys.stdout.write(f"{finding}\n")
    return 1 if failed else 0


def _without_unset_audit_log(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings as they come. That the settings name no audit log comes last, and not where a running server says
    whether it writes one: it may have been started with other settings."""
    unset: list[Finding] = []
    for finding in findings:
        if finding == doctor_settings.NO_AUDIT_LOG:
            unset.append(finding)
            continue
        if finding.name == doctor_metrics.AUDIT_LOG:
            unset.clear()
        yield finding
    yield from unset


def _subjects(arguments: Sequence[str]) -> tuple[ShardConfig, Server | None]:
    """The settings to check, of a file and flags, and the running server, if one is named.

    Raises ConfigError, KubeconfigError.
    """
    given = _flags(arguments)
    file, context = given.pop("kubeconfig", ""), given.pop("context", "")
    return _config(given), doctor_server.server_of(file, context) if file else None


def _flags(arguments: Sequence[str]) -> dict[str, Any]:
    """The flags that are given, by their names."""
    parser = argparse.ArgumentParser(
        prog="atoll doctor", description="Check whether this machine can run a shard.", allow_abbrev=False
    )
    parser.add_argument(
        "--config", metavar="FILE", help="settings of atoll start or atoll shard, which are checked too"
    )
    parser.add_argument("--root-directory", metavar="DIRECTORY")
    parser.add_argument("--bind-address", metavar="ADDRESS")
    parser.add_argument(
        "--secure-port", type=int, metavar="PORT", help="port to check; that of the directory's last start unless given"
    )
    text = "accept network and temporary file systems"
    parser.add_argument("--allow-any-filesystem", action="store_true", default=None, help=text)
    parser.add_argument("--kubeconfig", metavar="FILE", help="a running server, which is checked by its API too")
    parser.add_argument(
        "--context", metavar="NAME", help="context of that kubeconfig; shard-base if it has one, else the current one"
    )
    return {name: value for name, value in vars(parser.parse_args(list(arguments))).items() if value is not None}


def _config(given: dict[str, Any]) -> ShardConfig:
    """The settings to check: of a file, and flags. Raises ConfigError."""
    config = ShardConfig()
    if file := given.pop("config", ""):
        config = settings.load(StartConfig, ["--config", file], os.environ, "atoll doctor")[0].shard
    config = replace(config, **given)
    if "secure_port" in given:
        return config
    return replace(config, secure_port=_port_of(Path(config.root_directory)) or config.secure_port)


T = TypeVar("T")


def _safely(check: Callable[[T], Iterable[Finding]], subject: T) -> Iterator[Finding]:
    """Yield the findings of a check; an exception is a finding too (no permission, a store that cannot be opened)."""
    try:
        yield from check(subject)
    except Exception as error:
        yield Finding(FAIL, check.__name__, str(error))


# --- disk


def disk(config: ShardConfig) -> Iterator[Finding]:
    """Check the file system, free bytes, and the duration of a durable write in the directory of the store."""
    directory = existing(Path(config.root_directory))
    yield _file_system(directory, allow_any=config.allow_any_filesystem)
    free = filesystem.free_bytes(directory)
    reserve = StoreOptions(directory="").reserve_bytes
    level = FAIL if free < reserve else WARN if free < FREE_WARN_BYTES else OK
    yield Finding(level, "disk-space", f"{free // MIB} MiB free, {reserve // MIB} MiB are kept for deletes")
    try:
        sync_s = filesystem.measure_sync_s(directory)
    except OSError as error:
        yield Finding(FAIL, "disk-sync", str(error))
        return
    level = OK if sync_s <= SYNC_WARN_S else WARN
    yield Finding(level, "disk-sync", f"{sync_s * 1000:.2f} ms for a durable write of 4 KiB in {directory}")


def existing(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    path = path.absolute()
    return path if path.is_dir() else existing(path.parent)


def _file_system(directory: Path, *, allow_any: bool) -> Finding:
    kind = filesystem.file_system_of(directory) or "of unknown kind"
    try:
        filesystem.require_local(directory)
    except filesystem.UnsupportedFileSystem as error:
        return Finding(WARN if allow_any else FAIL, "file-system", str(error))
    return Finding(OK, "file-system", f"{directory} is on {kind}")


# --- clock


def clock(config: ShardConfig) -> Iterator[Finding]:
    """Check the year, the drift between wall and monotonic clock, and that the store has no future revisions."""
    now = datetime.now(UTC)
    yield Finding(OK if now.year in YEARS else FAIL, "clock", f"it is {now:%Y-%m-%d %H:%M:%S} UTC")
    drift_s = measured_drift_s(time.time, time.monotonic)
    level = OK if abs(drift_s) <= CLOCK_DRIFT_S else WARN
    window_ms = CLOCK_WINDOW_S * 1000
    yield Finding(level, "clock-drift", f"wall and steady clock differ by {drift_s * 1000:.2f} ms in {window_ms:.0f}")
    last_us = _last_revision(config)
    if last_us:
        ahead_s = last_us / 1e6 - time.time()
        level = FAIL if ahead_s > CLOCK_STEP_S else OK if ahead_s <= 1 else WARN
        fact = f"{ahead_s:.0f} s ahead of the clock" if ahead_s > 1 else "behind the clock, as it should be"
        yield Finding(level, "clock-store", f"the last revision of the store is {fact}")


def measured_drift_s(wall: Callable[[], float], steady: Callable[[], float]) -> float:
    """Return by how many seconds more the wall clock advanced than the monotonic one, over a short interval."""
    wall_s, steady_s = wall(), steady()
    time.sleep(CLOCK_WINDOW_S)
    return (wall() - wall_s) - (steady() - steady_s)


def _last_revision(config: ShardConfig) -> int:
    """Return the last revision of the store, in microseconds since 1970; 0 without a readable store."""
    options = store_options(config)
    if not (Path(options.directory) / filesystem.DATA_FILE).exists():
        return 0
    environment = open_for_reading(options)
    with contextlib.closing(environment), environment.reading() as txn:
        return environment.last(txn)


# --- cores


def cores(config: ShardConfig) -> Iterator[Finding]:
    """Name the cores and the memory that a shard may use here, and how many workers use them."""
    sentence = worker_count.advice(
        host_resources.usable(),
        os.getloadavg()[0],
        is_running=_is_running(config),
        has_workers=_listens(Path(config.root_directory, SOCKET)),
    )
    yield Finding(OK, "cores", sentence)


def _listens(path: Path) -> bool:
    """Return whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


# --- versions


def versions(config: ShardConfig) -> Iterator[Finding]:
    """Check the versions of Python and its libraries, nats-server, kubectl and its plug-ins."""
    enough = sys.version_info >= (3, 11)
    yield Finding(OK if enough else FAIL, "python", f"{platform.python_version()} on {platform.platform()}")
    yield Finding(OK, "lmdb", metadata.version("lmdb"))
    yield _nats_server()
    yield _kubectl()
    missing = [name for name in PLUGINS if shutil.which(name) is None]
    fact = f"{', '.join(missing)} not on PATH" if missing else "on PATH"
    yield Finding(WARN if missing else OK, "kubectl-plugins", fact)


def _nats_server() -> Finding:
    try:
        binary = find_binary()
        version = _output(str(binary), "--version").rpartition("v")[2].strip()
        check_version(version)
    except (ServerFailed, TooOld, OSError, subprocess.SubprocessError) as error:
        return Finding(FAIL, "nats-server", str(error))
    return Finding(OK, "nats-server", f"{version} at {binary}")


def _kubectl() -> Finding:
    binary = shutil.which("kubectl")
    if binary is None:
        return Finding(WARN, "kubectl", "not on PATH")
    try:
        version = json.loads(_output(binary, "version", "--client", "-o", "json"))["clientVersion"]["gitVersion"]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return Finding(WARN, "kubectl", f"{binary} does not tell its version: {error}")
    return Finding(OK, "kubectl", f"{version} at {binary}")


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True)
    return done.stdout


# --- files and port


def permissions(config: ShardConfig) -> Iterator[Finding]:
    """Check that the root directory is 0700, private files in it and in its store 0600, and all owned by this user."""
    root = Path(config.root_directory)
    if not root.exists():
        yield Finding(OK, "permissions", f"{root} does not exist yet")
        return
    wrong = [problem for path in _private_paths(root) if (problem := _exposed(path))]
    for problem in wrong:
        yield Finding(FAIL, "permissions", problem)
    if not wrong:
        yield Finding(OK, "permissions", f"{root} and what is in it are readable by their owner alone")


def _private_paths(root: Path) -> Iterator[Path]:
    """Return directories and the files that hold keys, data or credentials. Certificates (.crt) are public."""
    store = Path(store_options(ShardConfig(root_directory=str(root))).directory)
    yield root
    for folder in (root, store):
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if path.is_dir() or path.suffix != ".crt")


def _exposed(path: Path) -> str:
    """Return the problem with a file's owner or mode; "" if there is none."""
    found = path.lstat()
    if found.st_uid != os.geteuid():
        return f"{path} belongs to user {found.st_uid}"
    if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO) and not path.is_symlink():
        return f"{path} is {stat.S_IMODE(found.st_mode):04o}, others may use it"
    return ""


def port(config: ShardConfig) -> Iterator[Finding]:
    """Check that the HTTPS port is free, or used by the shard of this root directory."""
    address = f"{config.bind_address}:{config.secure_port}"
    if _is_free(config.bind_address, config.secure_port):
        yield Finding(OK, "port", f"{address} is free")
    elif _is_running(config) and _served(config) == config.secure_port:
        yield Finding(OK, "port", f"{address} is served by the shard of {config.root_directory}")
    else:
        yield Finding(FAIL, "port", f"{address} is taken; --secure-port 0 picks a free one")


def _is_free(address: str, number: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, number))
        except OSError:
            return False
        return True


def _is_running(config: ShardConfig) -> bool:
    directory = Path(store_options(config).directory)
    if not directory.is_dir():
        return False
    try:
        os.close(filesystem.own(directory))
    except filesystem.StoreInUse:
        return True
    return False


def _served(config: ShardConfig) -> int:
    return _port_of(Path(config.root_directory))


def _port_of(root: Path) -> int:
    """Return the port of the last start in a root directory; 0 without a valid one."""
    try:
        number = int((root / PORT_FILE).read_text())
    except (OSError, ValueError):
        return 0
    return number if 0 < number <= MAX_PORT else 0
