"""`atoll doctor` at a site: its front proxy and a shard of it let nobody in who should not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.servers.processes import atoll
from harness.servers.site import Site

CHECKS = (
    *("served-certificate", "tls", "anonymous", "forged-names", "unknown-tokens", "users-without-rights"),
    *("profiling", "server-clock", "certificates"),
)


@pytest.mark.parametrize("context", ["base", "shard-base"])
def test_a_front_proxy_and_a_shard_pass_every_check_of_who_is_let_in(site: Site, tmp_path: Path, context: str) -> None:
    here = ("--root-directory", str(tmp_path), "--secure-port", "0", "--allow-any-filesystem")
    ran = atoll("doctor", *here, "--kubeconfig", str(site.kubeconfig), "--context", context)
    levels = {name.rstrip(":"): level for level, name, *_ in (line.split() for line in ran.stdout.splitlines())}
    assert {name: levels.get(name) for name in CHECKS} == dict.fromkeys(CHECKS, "ok"), ran.stdout + ran.stderr
