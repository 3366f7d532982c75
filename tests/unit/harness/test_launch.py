"""Processes of the harness are forked from one in which a shard was started."""

from __future__ import annotations

import sys

from harness.servers.launch import PRELOADED, fork


def _exit_with_what_was_imported() -> None:
    sys.exit(0 if PRELOADED in sys.modules else 1)


def test_a_forked_process_has_what_a_shard_brought_into_memory() -> None:
    process = fork(_exit_with_what_was_imported)
    process.join(60)
    assert process.exitcode == 0
