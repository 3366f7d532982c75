"""`atoll`: starts a control plane, checks a machine, maintains a store.

Each command is a function from its arguments to an exit code. Its module is imported when the command runs, so that
`atoll --help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

USAGE = """usage: atoll COMMAND [options]

  start         run a shard with an embedded NATS server, or with --shards many shards
  shard         run one shard of a sharded deployment (site)
  front-proxy   run a front proxy of a site: one address for all shards
  cache-server  serve the objects that all shards replicate, over HTTP
  event-gateway let subscribers of events in at a NATS server, by their tokens
  virtual-workspaces
                serve virtual workspaces of an APIExport that Python modules define
  edge-init     write the edge service into a workspace
  edge-controllers
                run the controllers of edge clusters
  syncer        carry what a mailbox lists to an edge cluster, and its status back
  certs         make the certificates of a site on several machines, renew and revoke them
  nats-config   write configuration and users of a NATS server for several machines
  health        ask a process whether it serves, for health checks
  doctor        check disk, clock, versions and permissions
  fsck          check a store against itself, or repair it
  backup        copy the store of a running shard, at one revision
  restore       make a store of a backup, at its revision or an earlier one
  rotate-event-key
                add a key that signs a shard's events
  rotate-admin-tokens
                replace the tokens of admin.kubeconfig
  rotate        add a sealing key and re-seal all sealed objects, or drop an unused key
  mark-restored mark a store as restored from a backup
  compact       rewrite a store's file without its free pages
  version       print the version

Each command explains itself: atoll COMMAND --help
"""

#: The module and function of each command.
COMMANDS = {
    "start": ("start", "start"),
    "shard": ("start", "shard"),
    "front-proxy": ("front_proxy", "run"),
    "cache-server": ("cache_server", "run"),
    "event-gateway": ("event_gateway", "run"),
    "virtual-workspaces": ("virtual_workspaces", "run"),
    "edge-init": ("edge_init", "run"),
    "edge-controllers": ("edge_controllers", "run"),
    "syncer": ("syncer", "run"),
    "certs": ("certs", "run"),
    "nats-config": ("nats_config", "run"),
    "health": ("health", "run"),
    "doctor": ("doctor", "run"),
    "fsck": ("store", "fsck"),
    "backup": ("backup", "backup"),
    "restore": ("backup", "restore"),
    "rotate-event-key": ("event_key", "rotate"),
    "rotate-admin-tokens": ("admin_tokens", "rotate"),
    "rotate": ("store", "rotate"),
    "mark-restored": ("store", "mark_restored"),
    "compact": ("store", "compact"),
    "version": ("main", "version"),
}


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        sys.stderr.write(f"atoll: unknown command {arguments[0]!r}\n\n{USAGE}")
        return 2
    return loaded(arguments[0])(arguments[1:])


def loaded(command: str) -> Callable[[Sequence[str]], int]:
    """Return the function of a command, with its module."""
    module, function = COMMANDS[command]
    found: Callable[[Sequence[str]], int] = getattr(import_module(f"atoll.cli.atoll.{module}"), function)
    return found


def version(arguments: Sequence[str]) -> int:
    """`atoll version`."""
    from importlib import metadata  # slow to import, and no other command needs it

    sys.stdout.write(f"atoll {metadata.version('atoll')}\n")
    return 0
