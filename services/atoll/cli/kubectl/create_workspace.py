"""`kubectl create workspace`: create a workspace, wait until it is ready, enter it on request.

kubectl finds it as a plug-in of `create`. Invariant: without --ignore-not-ready, exit code 0 means
that the workspace is Ready, new or existing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, common_flags, load_context, run, say
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.cli.kubectl.workspaces import phase_of, type_of
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta.objects import Object, conditions_of
from atoll.machinery.meta.status import AlreadyExists

READY_TIMEOUT_S = 60.0


def main() -> None:
    """Entry point of the console script."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str], common: argparse.Namespace | None = None) -> int:
    """Run the command. Return its exit code. `common` are flags parsed by the caller."""
    options = _parser().parse_args(list(arguments), common)
    return run(_create(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl create workspace",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Create a workspace in the current one and wait until it is ready.",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--type", default="", metavar="PATH:NAME", help="type; the parent's type decides if left out")
    parser.add_argument("--enter", action="store_true", help="make it the current workspace")
    parser.add_argument("--ignore-existing", action="store_true", help="go on if it exists already")
    parser.add_argument("--ignore-not-ready", action="store_true", help="do not wait until it is ready")
    parser.add_argument("--location-selector", default="", metavar="K=V,...", help="labels of the shard to hold it")
    parser.add_argument("--create-context", default="", metavar="NAME", help="create a kubeconfig context for it")
    return parser


async def _create(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    if options.create_context and kubeconfig.has("context", options.create_context):
        raise Failure(f'context "{options.create_context}" already exists in kubeconfig')
    wanted = manifest(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        path = f"{workspaces.resolve(client.target.workspace, '.')}:{options.name}"
        workspace = await _created(
            client, wanted, ignore_existing=options.ignore_existing, ignore_not_ready=options.ignore_not_ready
        )
        if options.ignore_not_ready and not _is_ready(workspace):
            say(f'Workspace "{options.name}" is not ready yet (phase {phase_of(workspace) or "unknown"}).')
        else:
            workspace = await _ready(client, workspace)
            say(f'Workspace "{options.name}" (type {type_of(workspace)}) is ready to use.')
        place = await workspaces.check_access(client, path) if options.enter else None
    if options.create_context:
        workspaces.create_context(kubeconfig, context, options.create_context, path)
        kubeconfig.save()
        say(f'Created context "{options.create_context}".')
    if place is not None:
        workspaces.enter(kubeconfig, context, path)
        say(str(place))


def manifest(options: argparse.Namespace) -> Object:
    """Return the Workspace of the flags. Raises Failure."""
    spec: Object = {}
    if options.type:
        path, _, name = options.type.removeprefix(":").replace("/", ":").rpartition(":")
        spec["type"] = {"name": name, "path": path} if path else {"name": name}
    if options.location_selector:
        spec["location"] = {"selector": {"matchLabels": _labels(options.location_selector)}}
    return {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": options.name},
        "spec": spec,
    }


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.replace("==", "=").partition("=")
        if not equals or not key.strip() or key.strip().endswith("!"):
            raise Failure(f'"{part}" in --location-selector is not of the form key=value')
        labels[key.strip()] = value.strip()
    return labels


async def _created(client: Client, wanted: Object, *, ignore_existing: bool, ignore_not_ready: bool) -> Object:
    name = wanted["metadata"]["name"]
    try:
        created = await client.create(WORKSPACES, wanted)
    except AlreadyExists:
        if not ignore_existing:
            raise
        return _accepted(await client.get(WORKSPACES, name), wanted)
    waiting = "" if ignore_not_ready else " Waiting for it to be ready..."
    say(f'Workspace "{name}" (type {type_of(created)}) created.{waiting}')
    return created


def _accepted(existing: Object, wanted: Object) -> Object:
    """Return an existing workspace that matches the flags. Raises Failure for another type."""
    name = wanted["metadata"]["name"]
    type = type_of(wanted)
    # The server resolves a type without a path along the parents of the workspace.
    if type and type_of(existing) != type and not (":" not in type and type_of(existing).endswith(f":{type}")):
        raise Failure(f'workspace "{name}" exists already, with type {type_of(existing)} instead of {type}')
    say(f'Workspace "{name}" (type {type_of(existing)}) already exists.')
    return existing


async def _ready(client: Client, workspace: Object) -> Object:
    """Return the workspace once it is Ready. Raises Failure after a minute, or if it is deleted."""
    try:
        return await until(client, WORKSPACES, workspace, _is_ready, READY_TIMEOUT_S)
    except WaitTimeout as late:
        raise Failure(_unready(late.latest)) from None


def _is_ready(workspace: Object) -> bool:
    return phase_of(workspace) == "Ready"


def _unready(workspace: Object) -> str:
    conditions = conditions_of(workspace)
    reasons = "; ".join(f"{each['type']}: {each.get('message', '')}" for each in conditions if each["status"] != "True")
    text = f'workspace "{workspace["metadata"]["name"]}" is not ready after {READY_TIMEOUT_S:.0f} s'
    return f"{text} (phase {phase_of(workspace) or 'unknown'}{', ' + reasons if reasons else ''})"


if __name__ == "__main__":
    main()
