"""`kubectl_complete-kcp`, `kubectl_complete-atoll`, `kubectl_complete-kubestellar`: shell completion of the plug-ins.

kubectl calls them like `complete`. Commands are words without dashes, in the order of COMMANDS; values of flags and
object names come from the server. Invariant: as in `complete`, only suggestions are printed, never an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from atoll.cli.kubectl import complete, workspaces
from atoll.cli.kubectl.complete import (
    COMMON,
    NO_FILES,
    NO_SPACE,
    Suggestions,
    below,
    parse_common_flags,
    print_suggestions,
    query_server,
)
from atoll.cli.kubectl.workspaces import BINDINGS, EXPORTS, claim_name
from atoll.edge.kinds import PLACEMENTS, SYNC_TARGETS
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object

_COMMON = COMMON[:3]
_CLAIMS = (*_COMMON, "--resource", "--identity-hash")
_EDGE_KINDS = {"location": "an edge cluster of an inventory", "wmw": "a workspace for workloads"}
_QUICKSTART = ("--scenario", "--name-prefix", "--timeout", "--tree-depth", "--tree-count", "--tree-seed")
_IMPORT = ("--from-kubeconfig", "--from-context", "--path", "--rate")
_SYNCING = ("--api-group", "--api-kind", "--api-resource", "--api-version")
_DEPLOYMENT = (
    *_COMMON,
    "--output-file",
    "--syncer-image",
    "--namespace",
    "--kcp-namespace",
    "--labels",
    "--replicas",
    "--qps",
    "--burst",
    "--resources",
    "--lifetime",
)
_REGISTRATION = (*_DEPLOYMENT, "--imw", "--espw", "--silent")
#: The subcommands of a command, with their descriptions.
COMMANDS: dict[str, dict[str, str]] = {
    "kcp": {
        "bind": "bind an API that another workspace exports",
        "claims": "claims of bound exports",
        "crd": "definitions of kinds",
        "quickstart": "workspaces to try things with",
        "ws": "as kubectl ws",
    },
    "kcp bind": {"apiexport": "an API that another workspace exports"},
    "kcp claims": {"get": "show them", "accept": "accept them", "reject": "reject them"},
    "kcp claims get": {"apibinding": "of one APIBinding, or of all"},
    "kcp crd": {"snapshot": "print them as APIResourceSchemas"},
    "atoll": {
        "edge": "how far placements and edge clusters are",
        "events": "what changed, by whom, and in which fields",
        "export": "what this workspace exports, and to whom",
        "import": "copy a tree of workspaces into this site",
        "shards": "the shards of this site, and what they need",
        "site": "the site as a whole",
    },
    "atoll site": {"check": "compare Workspaces with logical clusters"},
    "kubestellar": {
        "ensure": "create or repair",
        "remove": "delete",
        "prep-for-syncer": "the manifest of a syncer",
        "prep-for-cluster": "ensure location, then prep-for-syncer",
        "syncer-gen": "the manifest of a syncer, from its mailbox",
        "customize": "an object as it would be at one location",
        "view": "the workspace as it is for edge clusters",
        "list-syncing-objects": "objects of one kind in all mailboxes",
    },
    "kubestellar ensure": _EDGE_KINDS,
    "kubestellar remove": _EDGE_KINDS,
}
FLAGS: dict[str, tuple[str, ...]] = {
    "kcp bind apiexport": (
        *_COMMON,
        "--name",
        "--timeout",
        "--accept-permission-claim",
        "--reject-permission-claim",
        "--accept-all-permission-claims",
        "--reject-all-permission-claims",
    ),
    "kcp claims get apibinding": _COMMON,
    "kcp claims accept": _CLAIMS,
    "kcp claims reject": _CLAIMS,
    "kcp crd snapshot": ("--filename", "--prefix", "--output"),
    "kcp quickstart": (*_COMMON, *_QUICKSTART, "--with-samples", "--enter", "--cleanup"),
    "atoll edge": (*_COMMON, "--espw", "--at", "--namespace"),
    "atoll events": (*_COMMON, "--since", "--watch", "--recursive", "--output"),
    "atoll export": _COMMON,
    "atoll import": (*_COMMON, *_IMPORT, "--dry-run", "--overwrite"),
    "atoll shards": _COMMON,
    "atoll site check": (*_COMMON, "--repair", "--delete-workspaces"),
    "kubestellar ensure location": (*_COMMON, "--imw", "--espw"),
    "kubestellar remove location": (*_COMMON, "--imw"),
    "kubestellar ensure wmw": (*_COMMON, "--espw", "--with-kube"),
    "kubestellar remove wmw": _COMMON,
    "kubestellar prep-for-syncer": _REGISTRATION,
    "kubestellar prep-for-cluster": _REGISTRATION,
    "kubestellar syncer-gen": _DEPLOYMENT,
    "kubestellar customize": (*_COMMON, "--customizer", "-f", "--imw", "--location"),
    "kubestellar view": (*_COMMON, "--off"),
    "kubestellar list-syncing-objects": (*_COMMON, "--espw", *_SYNCING, "--json", "--watch"),
}
#: Flags that take the next word as their value.
_VALUED = {
    *COMMON,
    "--name",
    "--since",
    "--timeout",
    "--accept-permission-claim",
    "--reject-permission-claim",
    "--resource",
    "--identity-hash",
    "-f",
    "--filename",
    "--prefix",
    "-o",
    "--output",
    *_REGISTRATION[3:-1],
    "--with-kube",
    *_IMPORT,
    *_SYNCING,
    "--customizer",
    "--location",
}
_FILES = {"-f", "--filename", "--kubeconfig", "--from-kubeconfig", "--output-file", "--customizer"}
_WORKSPACES = {"-w", "--workspace", "--imw", "--espw"}
_CHOICES = {
    "-o": ("yaml", "json"),
    "--output": ("yaml", "json"),
    "--with-kube": ("true", "false"),
    "--scenario": ("api-provider", "workspaces"),
}

Question = Callable[[Client], Coroutine[Any, Any, Suggestions]]


def kcp() -> None:
    """Entry point of `kubectl_complete-kcp`."""
    sys.exit(suggest("kcp", sys.argv[1:]))


def atoll() -> None:
    """Entry point of `kubectl_complete-atoll`."""
    sys.exit(suggest("atoll", sys.argv[1:]))


def kubestellar() -> None:
    """Entry point of `kubectl_complete-kubestellar`."""
    sys.exit(suggest("kubestellar", sys.argv[1:]))


def suggest(plugin: str, arguments: Sequence[str]) -> int:
    """Print suggestions for the last argument, which may be empty. Return exit code 0."""
    *before, word = arguments or [""]
    options, rest = parse_common_flags(before)
    if plugin == "kcp" and rest[:1] and rest[0] in {"ws", "workspace", "workspaces"}:
        before.remove(rest[0])
        return complete.suggest([*before, word])
    command, names = _command(plugin, rest)
    return print_suggestions(*_suggested(options, command, names, before[-1] if before else "", word))


def _command(plugin: str, words: list[str]) -> tuple[str, list[str]]:
    """Return the command that the words name, and its positional arguments."""
    command, names = plugin, []
    for number, word in enumerate(words):
        if word.startswith("-") or (number and words[number - 1] in _VALUED):
            continue
        if word in COMMANDS.get(command, {}):
            command = f"{command} {word}"
        else:
            names.append(word)
    return command, names


def _suggested(
    options: argparse.Namespace, command: str, names: list[str], last: str, word: str
) -> tuple[Suggestions, int]:
    if last in _VALUED:
        return _value(options, command, names, last, word)
    if word.startswith("-"):
        return dict.fromkeys((flag for flag in FLAGS.get(command, ()) if flag.startswith(word)), ""), NO_FILES
    if command in COMMANDS:
        found = COMMANDS[command] if not names else {}
        return {text: about for text, about in found.items() if text.startswith(word)}, NO_FILES
    question = None if names else _names(command, word)
    found = query_server(options, question) if question is not None else {}
    return found, NO_FILES | (NO_SPACE if command == "kcp bind apiexport" and found else 0)


def _value(
    options: argparse.Namespace, command: str, names: list[str], flag: str, word: str
) -> tuple[Suggestions, int]:
    if flag in _FILES or (flag == "-o" and command.startswith("kubestellar")):
        return {}, 0
    if flag in _WORKSPACES:
        return query_server(options, lambda client: below(client, word)), NO_FILES | NO_SPACE
    if command == "atoll events" and flag in {"-o", "--output"}:
        return {choice: "" for choice in ("json", "name") if choice.startswith(word)}, NO_FILES
    if flag in _CHOICES:
        return {choice: "" for choice in _CHOICES[flag] if choice.startswith(word)}, NO_FILES
    if names and flag in {"--accept-permission-claim", "--reject-permission-claim", "--resource"}:
        return query_server(options, lambda client: _claimed(client, command, names[0], word)), NO_FILES
    return {}, NO_FILES


def _names(command: str, word: str) -> Question | None:
    """Return the query for the object names that a command takes."""
    if command == "kcp bind apiexport":
        return lambda client: _exports(client, word)
    kinds = {
        "atoll edge": PLACEMENTS,
        "atoll export": EXPORTS,
        "kcp claims get apibinding": BINDINGS,
        "kcp claims accept": BINDINGS,
        "kcp claims reject": BINDINGS,
        "kubestellar ensure location": SYNC_TARGETS,
        "kubestellar remove location": SYNC_TARGETS,
        "kubestellar prep-for-syncer": SYNC_TARGETS,
        "kubestellar prep-for-cluster": SYNC_TARGETS,
    }
    resource = kinds.get(command)
    return (lambda client: _listed(client, resource, "", word)) if resource is not None else None


async def _listed(client: Client, resource: Resource, lead: str, begun: str) -> Suggestions:
    items = (await client.list(resource))["items"]
    names = sorted(str(item["metadata"]["name"]) for item in items)
    return {f"{lead}{name}": "" for name in names if name.startswith(begun)}


async def _exports(client: Client, word: str) -> Suggestions:
    """Return workspaces on the path to an export, and the exports of the workspace typed so far."""
    cut = max(word.rfind(":"), word.rfind("/")) + 1
    found = {f"{text}:": about for text, about in (await below(client, word)).items()}
    path = workspaces.resolve(client.target.workspace, workspaces.normalize(word[:cut]).removesuffix(":") or ".")
    return {**found, **await _listed(client.cluster(path), EXPORTS, word[:cut], word[cut:])} if cut else found


async def _claimed(client: Client, command: str, name: str, word: str) -> Suggestions:
    """Return the claims of the export that a command names, or of the export of the named binding."""
    if command == "kcp bind apiexport":
        path, _, export = workspaces.normalize(name).rpartition(":")
        provider = client.cluster(workspaces.resolve(client.target.workspace, path or "."))
        made = (await provider.get(EXPORTS, export)).get("spec", {}).get("permissionClaims")
    else:
        made = (await client.get(BINDINGS, name)).get("status", {}).get("exportPermissionClaims")
    claims: list[Object] = made or []
    return {claim_name(each): "" for each in claims if claim_name(each).startswith(word)}


if __name__ == "__main__":
    kcp()
