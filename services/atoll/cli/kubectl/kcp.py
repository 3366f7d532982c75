"""`kubectl kcp`: bind exported APIs, answer their claims, convert definitions to schemas to export.

kubectl finds it as a plug-in, with the name and commands of kcp's; each command is a module of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from atoll.cli.kubectl.plugin import print_error, say

USAGE = """usage: kubectl kcp COMMAND [options]

  bind apiexport PATH:NAME    bind an API that another workspace exports
  claims get|accept|reject    what bound exports claim of this workspace, and the answers to it
  crd snapshot                turn CustomResourceDefinitions into APIResourceSchemas to export
  quickstart                  workspaces to try things with
  workspace, ws               as kubectl ws

Each command explains itself: kubectl kcp COMMAND --help
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "bind": bind,
        "claims": claims,
        "crd": crd,
        "quickstart": quickstart,
        "workspace": workspace,
        "workspaces": workspace,
        "ws": workspace,
    }
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        say(USAGE.rstrip())
        return 0 if arguments else 2
    command = commands.get(arguments[0])
    if command is None:
        return print_error(f"unknown command {arguments[0]!r}; see kubectl kcp --help", 2)
    return command(arguments[1:])


def bind(arguments: Sequence[str]) -> int:
    """`kcp bind`."""
    from atoll.cli.kubectl import bind as command

    return command.dispatch(arguments)


def claims(arguments: Sequence[str]) -> int:
    """`kcp claims`."""
    from atoll.cli.kubectl import claims as command

    return command.dispatch(arguments)


def crd(arguments: Sequence[str]) -> int:
    """`kcp crd snapshot`."""
    from atoll.cli.kubectl import crd_snapshot

    if not arguments or arguments[0] != "snapshot":
        return print_error("kubectl kcp crd knows one command: snapshot", 2)
    return crd_snapshot.dispatch(arguments[1:])


def quickstart(arguments: Sequence[str]) -> int:
    """`kcp quickstart`."""
    from atoll.cli.kubectl import quickstart as command

    return command.dispatch(arguments)


def workspace(arguments: Sequence[str]) -> int:
    """`kcp workspace`, `kcp ws`: calls the other plug-in."""
    from atoll.cli.kubectl import ws

    return ws.dispatch(arguments)


if __name__ == "__main__":
    main()
