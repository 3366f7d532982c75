"""`kubectl kubestellar view`: the current workspace as it is for edge clusters, until `view --off`.

Kinds that would act in a workspace, such as roles and admission policies, are data in there. Invariant: as in `ws`, the
kubeconfig is written only after the server granted access.
"""

from __future__ import annotations

import argparse

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.kubestellar import flags
from atoll.cli.kubectl.plugin import Failure, load_context, say
from atoll.machinery.client.client import Client
from atoll.machinery.meta.status import Forbidden, NotFound


def add_commands(commands: flags.Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    found = flags.command(commands, "view", "the current workspace as it is for edge clusters", _view)
    found.add_argument("--off", action="store_true", help="back to the workspace itself")


async def _view(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    target = workspaces.target(kubeconfig, context, options.workspace)
    path = workspaces.resolve(target.workspace, ".")
    view = "" if options.off else workspaces.EDGE_VIEW
    async with Client(target) as client:
        if options.off:
            place = await workspaces.check_access(client, path)
        else:
            await _check(client, view, path)
    workspaces.enter(kubeconfig, context, path, view=view)
    say(str(place) if options.off else f'Current workspace is the edge view of "{path}".')


async def _check(client: Client, view: str, path: str) -> None:
    try:
        await client.view(f"{client.target.base_url}{view}", path).raw("GET", "/api")
    except (Forbidden, NotFound) as error:
        raise Failure(f'the edge view of workspace "{path}" cannot be entered: {error}') from error
