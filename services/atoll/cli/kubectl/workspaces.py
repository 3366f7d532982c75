"""Workspaces in the plug-ins: parsing of typed paths, kubeconfig entries, access checks.

`ws` and `create_workspace` call this. The kubeconfig entries have the names of kcp's plug-ins, so that both can be used
on one file. Invariant: the kubeconfig is written only after the server granted access to the workspace.
"""

from __future__ import annotations

import asyncio
import os
import re
from urllib.parse import urlsplit

import msgspec

from atoll.cli.kubectl.plugin import Failure, warn
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.client.target import CLUSTERS, Target, split_workspace
from atoll.machinery.edge import names
from atoll.machinery.meta.objects import Object, spec_of, status_of
from atoll.machinery.meta.status import Forbidden, NotFound

CURRENT, PREVIOUS = "workspace.kcp.io/current", "workspace.kcp.io/previous"
ROOT, HOME = "root", "~"
#: Path of the view of workspaces as they are for edge clusters, which `ws` stays in.
EDGE_VIEW = f"/services/{names.EDGE_VIEW}"
BINDINGS = Resource("apis.kcp.io", "v1alpha2", "apibindings", namespaced=False)
EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", namespaced=False)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Place(msgspec.Struct, frozen=True):
    """An accessible workspace. `type` is `path:name`, empty if its Workspace object could not be read."""

    path: str
    type: str = ""

    def __str__(self) -> str:
        return f'Current workspace is "{self.path}"{f" (type {self.type})" if self.type else ""}.'


def normalize(wanted: str) -> str:
    """Return a typed path with `:` between names, and `~` where the shell replaced it by the home directory.

    The superuser's home directory, /root, is not replaced: it means the root workspace.
    """
    home = os.environ.get("HOME", "")
    if home and home != "/root" and (wanted == home or wanted.startswith(home + "/")):
        wanted = HOME + wanted[len(home) :]
    return wanted.replace("/", ":")


def resolve(current: str, wanted: str) -> str:
    """Return the absolute path of `wanted`, relative to `current` (empty: none). Raises Failure.

    A path is absolute if it begins with `:`, or with `root`, the top of all workspaces.
    """
    text = wanted if wanted == ":" else wanted.removesuffix(":")
    absolute = text.startswith(":") or text.partition(":")[0] == ROOT
    names = (text.removeprefix(":") or ROOT).split(":")
    if not absolute and not current:
        raise Failure("the current context does not point to a workspace; name one by its absolute path, as in :root")
    path = [] if absolute else current.split(":")
    for name in names:
        if name == "..":
            if len(path) < 2:
                raise Failure(f'workspace "{":".join(path)}" has no parent')
            path.pop()
        elif _NAME.fullmatch(name):
            path.append(name)
        elif name != ".":
            raise Failure(f'"{wanted}" is not a workspace path: "{name}" is not a name')
    return ":".join(path)


def target(kubeconfig: Kubeconfig, context: str, workspace: str = "") -> Target:
    """Return the target of a context, in another workspace if given. Raises KubeconfigError, Failure.

    It is the workspace itself, also where the context shows its edge view.
    """
    found = kubeconfig.target(context)
    found = msgspec.structs.replace(found, path=found.path.replace(EDGE_VIEW + CLUSTERS, CLUSTERS))
    if not workspace:
        return found
    return msgspec.structs.replace(found, path=found.path_of(resolve(found.workspace, normalize(workspace))))


async def home_path(client: Client) -> str:
    """Return the path of the caller's home workspace, resolved by the server. Raises ApiError, Failure."""
    try:
        found = await client.cluster(ROOT).get(WORKSPACES, HOME)
    except (NotFound, Forbidden) as error:
        raise Failure(f"the server gives you no home workspace: {error}") from error
    url = str(spec_of(found).get("URL") or "")
    path = split_workspace(urlsplit(url).path)[1]
    if not path:
        raise Failure(f'the home workspace has no URL to go to ("{url}")')
    return path


async def check_access(client: Client, path: str) -> Place:
    """Check access to a workspace by discovery in it. Raises Failure without access, ApiError otherwise."""
    inside = client.cluster(path)
    api, apis, workspace, bindings = await asyncio.gather(
        inside.raw("GET", "/api"),
        inside.raw("GET", "/apis"),
        _workspace(client, path),
        inside.list(BINDINGS),
        return_exceptions=True,
    )
    for error in (api, apis):
        if isinstance(error, (Forbidden, NotFound)):
            raise _closed(path, workspace) from error
        if isinstance(error, BaseException):
            raise error
    if isinstance(bindings, dict):
        for binding in bindings.get("items") or ():
            warn_of_claims(binding)
    return Place(path, type_of(workspace) if isinstance(workspace, dict) else "")


async def _workspace(client: Client, path: str) -> Object:
    """Return the Workspace object in its parent. Without a parent there is only discovery."""
    parent, _, name = path.rpartition(":")
    if not parent or parent == "system":
        raise Forbidden("no parent")
    return await client.cluster(parent).get(WORKSPACES, name)


def _closed(path: str, workspace: object) -> Failure:
    if isinstance(workspace, NotFound):
        return Failure(f'workspace "{path}" not found')
    if isinstance(workspace, dict) and phase_of(workspace) != "Ready":
        return Failure(f'workspace "{path}" is not ready (phase {phase_of(workspace) or "unknown"})')
    return Failure(f'access to workspace "{path}" denied')


def type_of(workspace: Object) -> str:
    """Return `path:name` of a Workspace's type; only the name before the server resolved it."""
    type = spec_of(workspace).get("type") or {}
    return ":".join(part for part in (type.get("path"), type.get("name")) if part)


def phase_of(workspace: Object) -> str:
    """Return the phase: Scheduling, Initializing, Ready, ...; "" before the first."""
    return str(status_of(workspace).get("phase") or "")


def warn_of_claims(binding: Object) -> None:
    """Warn of each claim of the export that the binding neither accepts nor rejects."""
    answered = {claim_key(claim) for claim in spec_of(binding).get("permissionClaims") or ()}
    for claim in status_of(binding).get("exportPermissionClaims") or ():
        if claim_key(claim) not in answered:
            name = binding["metadata"]["name"]
            warn(f'APIBinding "{name}" neither accepts nor rejects the claim on {claim_name(claim)}')


def claim_key(claim: Object) -> tuple[str, str, str]:
    """Return the identity of a claim: group, resource and identity hash."""
    return claim.get("group") or "", claim.get("resource") or "", claim.get("identityHash") or ""


def claim_name(claim: Object) -> str:
    """Return `resource.group` of a claim, or the resource alone for the core group."""
    return f"{claim.get('resource')}.{claim['group']}" if claim.get("group") else str(claim.get("resource"))


# --- kubeconfig


def workspace_of(kubeconfig: Kubeconfig, context: str) -> str:
    """Return the workspace of a context; "" if its URL names none. Raises KubeconfigError."""
    cluster = kubeconfig.entry("cluster", kubeconfig.entry("context", context).get("cluster", ""))
    return split_workspace(urlsplit(str(cluster.get("server") or "")).path)[1]


def enter(kubeconfig: Kubeconfig, context: str, path: str, *, view: str | None = None) -> None:
    """Make a workspace the current one, with the credentials of `context`, which becomes the previous one.

    `view` is the path of the view to see it in, "" for none; None: as now.
    """
    found = kubeconfig.entry("context", context)
    before = kubeconfig.entry("cluster", found["cluster"])
    cluster = with_workspace(before, path, view)
    if context == CURRENT == kubeconfig.current and cluster == before:
        return
    _remember(kubeconfig, found)
    kubeconfig.set_entry("cluster", CURRENT, cluster)
    kubeconfig.set_entry("context", CURRENT, {**found, "cluster": CURRENT})
    kubeconfig.use(CURRENT)
    kubeconfig.save()


def go_back(kubeconfig: Kubeconfig, context: str) -> None:
    """Swap the current and the previous workspace. The caller has called `require_previous`."""
    before = kubeconfig.entry("context", PREVIOUS)
    cluster = kubeconfig.entry("cluster", before["cluster"])
    found = kubeconfig.entry("context", context)
    _remember(kubeconfig, found)
    if before["cluster"] == PREVIOUS:
        kubeconfig.set_entry("cluster", CURRENT, cluster)
        before = {**before, "cluster": CURRENT}
    kubeconfig.set_entry("context", CURRENT, before)
    kubeconfig.use(CURRENT)
    kubeconfig.save()


def require_previous(kubeconfig: Kubeconfig) -> str:
    """Return the previous workspace. Raises Failure if there is none."""
    path = workspace_of(kubeconfig, PREVIOUS) if kubeconfig.has("context", PREVIOUS) else ""
    if not path:
        raise Failure("no previous workspace found in kubeconfig")
    return path


def create_context(kubeconfig: Kubeconfig, context: str, name: str, path: str) -> None:
    """Add a context for a workspace. Does not save the file."""
    found = kubeconfig.entry("context", context)
    kubeconfig.set_entry("cluster", name, with_workspace(kubeconfig.entry("cluster", found["cluster"]), path))
    kubeconfig.set_entry("context", name, {**found, "cluster": name})


def with_workspace(cluster: Object, path: str, view: str | None = None) -> Object:
    """Return a kubeconfig cluster for another workspace of the same server, in the same view or another."""
    url = urlsplit(str(cluster["server"]))
    prefix = split_workspace(url.path)[0]
    if view is not None:
        prefix = prefix.removesuffix(EDGE_VIEW) + view
    return {**cluster, "server": url._replace(path=prefix + CLUSTERS + path, query="", fragment="").geturl()}


def _remember(kubeconfig: Kubeconfig, context: Object) -> None:
    """Save a context as the previous one; the caller then overwrites the cluster entry `current`."""
    if context["cluster"] == CURRENT:
        kubeconfig.set_entry("cluster", PREVIOUS, kubeconfig.entry("cluster", CURRENT))
        context = {**context, "cluster": PREVIOUS}
    kubeconfig.set_entry("context", PREVIOUS, context)
