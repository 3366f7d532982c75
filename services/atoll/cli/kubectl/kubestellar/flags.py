"""Flags that several commands of the plug-in have, and labels as arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, common_flags, load_context
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig

#: The workspace of the edge service, unless a flag names another.
SERVICE = "root:espw"
MANAGER = "kubectl-kubestellar"

Commands = argparse._SubParsersAction
Work = Callable[[argparse.Namespace], Coroutine[Any, Any, None]]


def command(commands: Commands[argparse.ArgumentParser], name: str, about: str, work: Work) -> argparse.ArgumentParser:
    """Add a command with the flags of every plug-in; return its parser."""
    found = commands.add_parser(name, parents=[common_flags()], help=about, description=about, allow_abbrev=False)
    found.set_defaults(work=work)
    return found


def inventory(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the workspace of an inventory."""
    parser.add_argument("--imw", default="", metavar="PATH", help="workspace of the inventory; else the current one")


def service(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the workspace of the edge service."""
    parser.add_argument("--espw", default=SERVICE, metavar="PATH", help=f"workspace of the edge service ({SERVICE})")


def connect(options: argparse.Namespace, workspace: str = "") -> tuple[Client, Kubeconfig, str]:
    """Return a client of a workspace, else of the one that the flags name; with kubeconfig and context.

    Raises KubeconfigError, Failure.
    """
    kubeconfig, context = load_context(options)
    target = workspaces.target(kubeconfig, context, workspace or options.workspace)
    workspaces.resolve(target.workspace, ".")
    return Client(target, manager=MANAGER), kubeconfig, context


def labels_of(words: Sequence[str]) -> dict[str, str]:
    """Return labels written as KEY=VALUE. Raises Failure."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Failure(f'"{word}" is not a label of the form KEY=VALUE', 2)
        found[key] = value
    return found
