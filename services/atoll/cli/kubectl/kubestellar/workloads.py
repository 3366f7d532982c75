"""`kubectl kubestellar ensure wmw` and `remove wmw`: workspaces for workloads of edge clusters."""

from __future__ import annotations

import argparse
from contextlib import suppress

from atoll.cli.kubectl.kubestellar import flags
from atoll.cli.kubectl.kubestellar.bindings import ensure_bound
from atoll.cli.kubectl.plugin import say
from atoll.cli.kubectl.workspaces import BINDINGS
from atoll.edge import workspaces
from atoll.edge.install import BINDING
from atoll.edge.objects import service
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.status import NotFound

TYPE = "edge-workload"
KUBERNETES, KUBERNETES_BINDING = "kubernetes", "bind-kubernetes"


def add_commands(kinds: flags.Commands[argparse.ArgumentParser], verb: str) -> None:
    """Add the command of one verb."""
    if verb == "ensure":
        found = flags.command(kinds, "wmw", "a workspace for workloads, below root or the workspace of -w", _ensure)
        flags.service(found)
        found.add_argument(
            "--with-kube", choices=("true", "false"), default="true", help="whether it has Kubernetes' own kinds (true)"
        )
    else:
        found = flags.command(kinds, "wmw", "delete a workspace for workloads", _remove)
    found.add_argument("name", metavar="NAME")


async def _ensure(options: argparse.Namespace) -> None:
    client, _, _ = flags.connect(options, options.workspace or f":{ROOT}")
    async with client:
        path = f"{client.target.workspace}:{options.name}"
        if await workspaces.ensure(client, path, {"name": TYPE, "path": options.espw}):
            say(f'Workspace "{path}" created.')
        await workspaces.ready(client, path)
        inside = client.cluster(path)
        await ensure_bound(inside, BINDING, options.espw, service().export)
        await _kubernetes(inside, wanted=options.with_kube == "true")


async def _kubernetes(client: Client, *, wanted: bool) -> None:
    if wanted:
        await ensure_bound(client, KUBERNETES_BINDING, ROOT, KUBERNETES)
        return
    with suppress(NotFound):
        await client.delete(BINDINGS, KUBERNETES_BINDING)
        say(f'APIBinding "{KUBERNETES_BINDING}" deleted.')


async def _remove(options: argparse.Namespace) -> None:
    client, _, _ = flags.connect(options, options.workspace or f":{ROOT}")
    async with client:
        with suppress(NotFound):
            await client.delete(WORKSPACES, options.name)
            say(f'Workspace "{client.target.workspace}:{options.name}" deleted.')
