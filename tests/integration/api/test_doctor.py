"""`atoll doctor` beside a running shard: a default installation with an audit log has nothing to warn of."""

from __future__ import annotations

from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess

#: What is the shard's, and not of the machine of the tests.
CHECKS = (
    *("listeners", "nats-anonymous", "tls", "served-certificate", "anonymous", "forged-names", "unknown-tokens"),
    *("users-without-rights", "profiling", "ready", "server-clock", "audit-log", "stream", "permissions", "port"),
)


def test_a_running_shard_of_the_default_passes_every_check(shard: ShardProcess) -> None:
    flags = ("--root-directory", str(shard.root), "--allow-any-filesystem", "--kubeconfig", str(shard.kubeconfig))
    ran = atoll("doctor", *flags)
    levels = {name.rstrip(":"): level for level, name, *_ in (line.split() for line in ran.stdout.splitlines())}
    assert {name: levels.get(name) for name in CHECKS} == dict.fromkeys(CHECKS, "ok"), ran.stdout
    assert (ran.code, ran.stderr) == (0, "")
