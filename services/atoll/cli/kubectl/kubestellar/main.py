"""The commands of `kubectl kubestellar`, which kubectl finds as a plug-in."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import structlog

from atoll.cli.kubectl.kubestellar import customize, locations, registration, syncing_objects, view, workloads
from atoll.cli.kubectl.plugin import run


def main() -> None:
    """Entry point of the console script. Standard output is for what a command prints, not for a log."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    options = _parser().parse_args(list(arguments) or ["--help"])
    return run(options.work(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl kubestellar",
        allow_abbrev=False,
        description="Edge clusters: inventories, workspaces for workloads, registration. Commands may be repeated.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for verb, about in (("ensure", "create or repair"), ("remove", "delete")):
        kinds = commands.add_parser(verb, help=f"{about} a location or a workspace for workloads", allow_abbrev=False)
        kind = kinds.add_subparsers(dest="kind", required=True, metavar="location|wmw")
        locations.add_commands(kind, verb)
        workloads.add_commands(kind, verb)
    registration.add_commands(commands)
    customize.add_commands(commands)
    view.add_commands(commands)
    syncing_objects.add_commands(commands)
    return parser


if __name__ == "__main__":
    main()
