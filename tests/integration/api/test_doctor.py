"""`atoll doctor` beside a running shard: a default installation with an audit log has nothing to warn of."""

from __future__ import annotations

from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess

#: Of the machine of the tests, or because of how they start: not of the shard.
_OF_THE_MACHINE = {"disk-space", "disk-sync", "clock-drift", "file-system", "kubectl", "kubectl-plugins", "audit"}


def test_a_running_shard_of_the_default_passes_every_check(shard: ShardProcess) -> None:
    flags = ("--root-directory", str(shard.root), "--allow-any-filesystem", "--kubeconfig", str(shard.kubeconfig))
    ran = atoll("doctor", *flags)
    lines = [line.split(maxsplit=2) for line in ran.stdout.splitlines()]
    levels = {name.rstrip(":"): level for level, name, _ in lines if name.rstrip(":") not in _OF_THE_MACHINE}
    assert (ran.code, ran.stderr, set(levels.values())) == (0, "", {"ok"}), ran.stdout
    assert levels.keys() >= {
        *("listeners", "nats-anonymous", "tls", "served-certificate", "anonymous", "forged-names", "unknown-tokens"),
        *("users-without-rights", "profiling", "ready", "server-clock", "audit-log", "stream", "permissions"),
    }
