"""`atoll`: start a control plane, check a machine, look after a store.

Each command is a function of its arguments that gives an exit code; imports are local, so that `atoll --help` is
quick and a plug-in does not load the server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

USAGE = """usage: atoll COMMAND [options]

  start         run a shard with an embedded NATS server, or with --shards a whole site
  shard         run one shard of a site
  front-proxy   run the one door to all shards of a site
  cache-server  serve what all shards replicate, over HTTP
  nats-config   write what a NATS server for several machines is told
  doctor        check disk, clock, versions and permissions
  fsck          check a store against itself
  rotate        add a sealing key and re-seal what is stored
  version       print the version

Each command explains itself: atoll COMMAND --help
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; gives its exit code."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "start": start,
        "shard": shard,
        "front-proxy": front_proxy,
        "cache-server": cache_server,
        "nats-config": nats_config,
        "doctor": doctor,
        "fsck": fsck,
        "rotate": rotate,
        "version": version,
    }
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    command = commands.get(arguments[0])
    if command is None:
        sys.stderr.write(f"atoll: unknown command {arguments[0]!r}\n\n{USAGE}")
        return 2
    return command(arguments[1:])


def start(arguments: Sequence[str]) -> int:
    """`atoll start`."""
    from atoll.cli import serving

    return serving.start(arguments)


def shard(arguments: Sequence[str]) -> int:
    """`atoll shard`."""
    from atoll.cli import serving

    return serving.shard(arguments)


def cache_server(arguments: Sequence[str]) -> int:
    """`atoll cache-server`."""
    from atoll.cli import cacheserver

    return cacheserver.run(arguments)


def front_proxy(arguments: Sequence[str]) -> int:
    """`atoll front-proxy`."""
    from atoll.cli import front_proxy as command

    return command.run(arguments)


def nats_config(arguments: Sequence[str]) -> int:
    """`atoll nats-config`."""
    from atoll.cli import nats_config as command

    return command.run(arguments)


def doctor(arguments: Sequence[str]) -> int:
    """`atoll doctor`."""
    from atoll.cli import doctor as command

    return command.run(arguments)


def fsck(arguments: Sequence[str]) -> int:
    """`atoll fsck`."""
    from atoll.cli import store

    return store.fsck(arguments)


def rotate(arguments: Sequence[str]) -> int:
    """`atoll rotate`."""
    from atoll.cli import store

    return store.rotate(arguments)


def version(arguments: Sequence[str]) -> int:
    """`atoll version`."""
    from importlib import metadata

    sys.stdout.write(f"atoll {metadata.version('atoll')}\n")
    return 0


def refused(text: str) -> int:
    """Tell what went wrong; gives the exit code."""
    sys.stderr.write(f"atoll: {text}\n")
    return 1
