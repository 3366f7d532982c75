"""`kubectl atoll`: commands beyond those of kcp's plug-ins.

kubectl finds it as a plug-in; each command is a module of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from atoll.cli.kubectl.plugin import print_error, say

USAGE = """usage: kubectl atoll COMMAND [options]

  edge [PLACEMENT] how far the placements of this workspace are; of one, how far each edge cluster is
  edge why RESOURCE NAME --at LOCATION
                   how far an object is on its way to an edge cluster, and why
  events [RESOURCE...]
                   what changed in this workspace, by whom, and in which fields
  export [NAME]    what this workspace exports; of one export, who consumes it and how far its stream is behind
  import --from-kubeconfig FILE
                   copy a tree of workspaces of kcp, or of another site, into this one
  root create PATH --shard NAME [--owner USER]
                   a tree of workspaces beside root, held by a shard
  shards           the shards of this site: health, load, disk, lag, certificates
  shard forget NAME
                   give up a shard that is lost for good
  site check [--repair]
                   Workspaces without a logical cluster, and clusters without a Workspace

Each command explains itself: kubectl atoll COMMAND --help
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        say(USAGE.rstrip())
        return 0 if arguments else 2
    if arguments[0] == "root":
        from atoll.cli.kubectl import root

        return root.dispatch(arguments[1:])
    if arguments[0] == "edge":
        from atoll.cli.kubectl import edge, edge_why

        is_why = len(arguments) > 2 and arguments[1] == "why"
        return edge_why.dispatch(arguments[2:]) if is_why else edge.dispatch(arguments[1:])
    if arguments[0] == "events":
        from atoll.cli.kubectl.events import command

        return command.dispatch(arguments[1:])
    if arguments[0] in {"export", "exports"}:
        from atoll.cli.kubectl import export

        return export.dispatch(arguments[1:])
    if arguments[0] == "import":
        from atoll.cli.kubectl.tree_import import command as tree_import

        return tree_import.dispatch(arguments[1:])
    if arguments[0] == "site":
        from atoll.cli.kubectl import site_check

        return site_check.dispatch(arguments[1:])
    if arguments[0] == "shards" and not set(arguments[1:]) & {"forget"}:
        from atoll.cli.kubectl import shard_list

        return shard_list.dispatch(arguments[1:])
    if arguments[0] in {"shard", "shards"}:
        from atoll.cli.kubectl import shard

        return shard.dispatch(arguments[1:])
    return print_error(f"unknown command {arguments[0]!r}; see kubectl atoll --help", 2)


if __name__ == "__main__":
    main()
