"""`kubectl_complete-ws` and `kubectl_complete-create-workspace`: shell completion of the plug-ins.

kubectl runs them with the arguments so far, the unfinished word last. They print one suggestion a line, with an
optional tab and description, then `:` and cobra's directive; `complete_kcp` does the same for the other plug-ins.
Invariant: on every failure there are no suggestions and no error text, because the shell would insert the output.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, common_flags, load_context, say
from atoll.cli.kubectl.workspaces import phase_of, type_of
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import KubeconfigError
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.pending_response import ClientError

TYPES = Resource("tenancy.kcp.io", "v1alpha1", "workspacetypes", namespaced=False)
#: Completion is interactive, so the limit is short.
TIMEOUT_S = 3.0
#: cobra's ShellCompDirective: no space after the word; no file names.
NO_SPACE, NO_FILES = 2, 4

COMMANDS = {
    "current": "show the current workspace",
    "use": "go there",
    "tree": "the workspaces below",
    "create": "create a workspace",
    "create-context": "a context for the current workspace",
}
PLACES = {"..": "the parent", ".": "here", "-": "where you came from", "~": "your home workspace", ":": "root"}
COMMON = ("--kubeconfig", "--context", "--workspace", "-w")
_COMMON = COMMON[:3]
FLAGS = {
    "": (*_COMMON, "--short"),
    "use": (*_COMMON, "--short"),
    "current": ("--kubeconfig", "--context", "--short"),
    "tree": (*_COMMON, "--full", "--wide", "--interactive"),
    "create-context": (*_COMMON, "--overwrite", "--keep-current"),
    "create": (
        *_COMMON,
        "--type",
        "--enter",
        "--ignore-existing",
        "--ignore-not-ready",
        "--location-selector",
        "--create-context",
    ),
}
#: Flags that take the next word as their value.
_VALUED = {*COMMON, "--type", "--location-selector", "--create-context"}

Suggestions = dict[str, str]


def ws() -> None:
    """Entry point of `kubectl_complete-ws`."""
    sys.exit(suggest(sys.argv[1:]))


def create_workspace() -> None:
    """Entry point of `kubectl_complete-create-workspace`."""
    sys.exit(suggest(["create", *sys.argv[1:]]))


def suggest(arguments: Sequence[str]) -> int:
    """Print suggestions for the last argument, which may be empty. Return exit code 0."""
    *before, word = arguments or [""]
    options, rest = parse_common_flags(before)
    return print_suggestions(*_suggested(options, rest, before[-1] if before else "", word))


def print_suggestions(found: Suggestions, directive: int) -> int:
    """Print suggestions in kubectl's format. Return the exit code."""
    for text, about in found.items():
        say(f"{text}\t{about}" if about else text)
    say(f":{directive}")
    return 0


def parse_common_flags(before: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the common flags and the remaining words."""
    parser = common_flags()
    waiting = bool(before) and before[-1] in COMMON
    return parser.parse_known_args(before[:-1] if waiting else before)


def _suggested(options: argparse.Namespace, rest: list[str], last: str, word: str) -> tuple[Suggestions, int]:
    command = rest[0] if rest and rest[0] in COMMANDS else ""
    flag, equals, value = word.partition("=")
    if last in _VALUED or (equals and flag in _VALUED):
        name, typed = (flag, value) if equals else (last, word)
        if name in {"-w", "--workspace"}:
            found = query_server(options, lambda client: below(client, typed))
            return {(f"{name}={text}" if equals else text): about for text, about in found.items()}, NO_FILES | NO_SPACE
        wanted = command == "create" and name == "--type"
        found = query_server(options, lambda client: _types(client, typed)) if wanted else {}
        return {(f"{name}={text}" if equals else text): about for text, about in found.items()}, NO_FILES
    if word.startswith("-") and word != "-":
        return dict.fromkeys((flag for flag in FLAGS[command] if flag.startswith(word)), ""), NO_FILES
    if _positionals(rest[1:] if command else rest) or command not in {"", "use"}:
        return {}, NO_FILES
    fixed = {**PLACES, **({} if command else COMMANDS)}
    found = {text: about for text, about in fixed.items() if text.startswith(word)}
    children = query_server(options, lambda client: below(client, word))
    return {**found, **children}, NO_FILES | (NO_SPACE if children else 0)


def _positionals(words: list[str]) -> list[str]:
    return [
        each
        for number, each in enumerate(words)
        if not each.startswith("--") and (not number or words[number - 1] not in _VALUED)
    ]


def query_server(
    options: argparse.Namespace, question: Callable[[Client], Coroutine[Any, Any, Suggestions]]
) -> Suggestions:
    """Return the suggestions of a query; empty if the server fails, refuses or is slow."""

    async def ask() -> Suggestions:
        kubeconfig, context = load_context(options)
        target = workspaces.target(kubeconfig, context, options.workspace)
        async with asyncio.timeout(TIMEOUT_S), Client(target) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except (Failure, KubeconfigError, ApiError, ClientError, OSError, TimeoutError):
        return {}


async def below(client: Client, word: str) -> Suggestions:
    """Return the workspaces that complete a word, with the typed parent path as it was typed."""
    cut = max(word.rfind(":"), word.rfind("/")) + 1
    lead, begun = word[:cut], word[cut:]
    top = {f"{lead}{workspaces.ROOT}": "the workspace that all others are below"} if not lead.strip(":/") else {}
    found = top if lead and top else {**await _children(client, lead), **top}
    return {text: about for text, about in found.items() if text.startswith(lead + begun)}


async def _children(client: Client, lead: str) -> Suggestions:
    first, _, further = workspaces.normalize(lead).partition(":")
    if first == workspaces.HOME:
        path = workspaces.resolve(await workspaces.home_path(client), further.rstrip(":") or ".")
    else:
        path = workspaces.resolve(client.target.workspace, workspaces.normalize(lead).removesuffix(":") or ".")
    listed = await client.cluster(path).list(WORKSPACES)
    return {f"{lead}{each['metadata']['name']}": _about(each) for each in listed["items"]}


def _about(workspace: Object) -> str:
    phase = phase_of(workspace)
    return f"type {type_of(workspace)}" + (f", {phase}" if phase not in {"", "Ready"} else "")


async def _types(client: Client, word: str) -> Suggestions:
    """Return WorkspaceTypes of the current workspace and its parents, by path and by resolvable name."""
    path = workspaces.resolve(client.target.workspace, ".")
    names = path.split(":")
    levels = [":".join(names[:count]) for count in range(len(names), 0, -1)]
    if workspaces.ROOT not in levels:
        levels.append(workspaces.ROOT)
    answers = await asyncio.gather(*(client.cluster(level).list(TYPES) for level in levels), return_exceptions=True)
    found: Suggestions = {}
    for level, answer in zip(levels, answers, strict=True):
        for each in answer["items"] if isinstance(answer, dict) else ():
            name = each["metadata"]["name"]
            # A name resolves to the nearest type of that name.
            found.setdefault(name, f"of {level}")
            found[f"{level}:{name}"] = ""
    return {text: about for text, about in sorted(found.items()) if text.startswith(word)}


if __name__ == "__main__":
    ws()
