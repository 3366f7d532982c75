"""`kubectl ws`: show or change the current workspace, and print the tree of workspaces below it.

kubectl finds it as a plug-in. It reads and writes kubectl's kubeconfig. Invariant: a change first checks access to the
workspace (`workspaces.check_access`), so that a mistyped path changes nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, common_flags, load_context, print_error, run, say
from atoll.cli.kubectl.tree import paths, render, workspace_tree
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig

USAGE = """usage: kubectl ws [PATH | COMMAND | -i] [--kubeconfig FILE] [--context NAME] [-w PATH]

Without arguments, show the current workspace. With PATH, go there:

  a:b        below the current workspace (/ works as well as :)
  :root:a    from the top; root:a means the same
  .  ..  -   here, the parent, where you came from
  :          the root workspace
  ~          your home workspace

Commands:

  current [--short]                                     show the current workspace
  use PATH                                              go there, also where PATH is the name of a command
  tree [-f | --full] [--wide] [-i]                      the workspaces below, with whole paths if --full, and
                                                        type, phase and cluster if --wide; with -i choose one
  -i | --interactive                                    as tree -i: choose where to go
  create NAME [options]                                 as kubectl create workspace
  create-context [NAME] [--overwrite] [--keep-current]  a kubeconfig context for the current workspace

With -w (--workspace) PATH, a command starts from there and not from the current workspace.
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    options, rest = common_flags().parse_known_args(list(arguments))
    commands: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
        "current": current,
        "use": use,
        "tree": tree,
        "create": create,
        "create-context": create_context,
    }
    if rest and rest[0] in {"-h", "--help", "help"}:
        say(USAGE.rstrip())
        return 0
    if rest and rest[0] in commands:
        return commands[rest[0]](options, rest[1:])
    if rest and rest[0] in {"-i", "--interactive"}:
        return tree(options, rest)
    return use(options, rest) if rest and not rest[0].startswith("--") else current(options, rest)


def _parser(command: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"kubectl ws {command}", allow_abbrev=False)


def current(options: argparse.Namespace, rest: list[str]) -> int:
    """`ws`, `ws current`: uses only the kubeconfig."""
    parser = _parser("current")
    parser.add_argument("--short", action="store_true", help="print only the path")
    found = parser.parse_args(rest)

    async def show() -> None:
        kubeconfig, context = load_context(options)
        path = workspaces.workspace_of(kubeconfig, context)
        if not path:
            raise Failure(f'the current context "{context}" does not point to a workspace')
        say(path if found.short else str(workspaces.Place(path)))

    return run(show())


def use(options: argparse.Namespace, rest: list[str]) -> int:
    """`ws PATH`."""
    parser = _parser("use")
    parser.add_argument("path", help="where to go")
    parser.add_argument("--short", action="store_true", help="print only the path")
    found = parser.parse_args(rest)
    if not found.path:
        return print_error("an empty path leads nowhere", 2)
    return run(_go(options, workspaces.normalize(found.path), short=found.short))


async def _go(options: argparse.Namespace, wanted: str, *, short: bool) -> None:
    kubeconfig, context = load_context(options)
    back = wanted == "-"
    path = workspaces.require_previous(kubeconfig) if back else ""
    start = workspaces.target(kubeconfig, workspaces.PREVIOUS if back else context, "" if back else options.workspace)
    async with Client(start) as client:
        if not back:
            path = await _destination(client, wanted)
        place = await workspaces.check_access(client, path)
    if back:
        workspaces.go_back(kubeconfig, context)
    else:
        workspaces.enter(kubeconfig, context, place.path)
    say(place.path if short else str(place))


async def _destination(client: Client, wanted: str) -> str:
    base = client.target.workspace
    if wanted.partition(":")[0] == workspaces.HOME:
        base = await workspaces.home_path(client)
        wanted = wanted.removeprefix(workspaces.HOME).removeprefix(":") or "."
    return workspaces.resolve(base, wanted)


def tree(options: argparse.Namespace, rest: list[str]) -> int:
    """`ws tree`."""
    parser = _parser("tree")
    parser.add_argument("-f", "--full", action="store_true", help="print whole paths")
    parser.add_argument("--wide", action="store_true", help="print type, phase and cluster of each")
    parser.add_argument("-i", "--interactive", action="store_true", help="choose a workspace and go there")
    found = parser.parse_args(rest)

    async def draw() -> None:
        if found.interactive and not is_terminal():
            raise Failure("--interactive needs a terminal; use kubectl ws tree and kubectl ws PATH")
        kubeconfig, context = load_context(options)
        async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
            path = workspaces.resolve(client.target.workspace, ".")
            top = await workspace_tree(client, path)
        drawn = render(top, full=found.full, wide=found.wide)
        if not found.interactive:
            say(drawn)
            return
        _, *lines = drawn.splitlines()
        say("\n".join(f"{number:4}  {line}" for number, line in enumerate(lines, start=1)))
        if chosen := _choice(len(lines)):
            await _go(options, f":{paths(top)[chosen - 1]}", short=False)

    return run(draw())


def is_terminal() -> bool:
    """Return whether a person can see the output and type."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _choice(count: int) -> int:
    """Read the number of a workspace; 0 for an empty line or the end of input. Raises Failure."""
    try:
        text = input(f"Go to (1-{count}, Enter to stay): ").strip()
    except EOFError:
        return 0
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= count:
        raise Failure(f'"{text}" is not a number between 1 and {count}')
    return int(text)


def create(options: argparse.Namespace, rest: list[str]) -> int:
    """`ws create`: calls the other plug-in."""
    from atoll.cli.kubectl import create_workspace

    return create_workspace.dispatch(rest, options)


def create_context(options: argparse.Namespace, rest: list[str]) -> int:
    """`ws create-context`: uses only the kubeconfig."""
    parser = _parser("create-context")
    parser.add_argument("name", nargs="?", default="", help="name of the context; the path if left out")
    parser.add_argument("--overwrite", action="store_true", help="replace a context of this name")
    parser.add_argument("--keep-current", action="store_true", help="do not make it the current context")
    found = parser.parse_args(rest)

    async def add() -> None:
        kubeconfig, context = load_context(options)
        here = workspaces.workspace_of(kubeconfig, context)
        path = workspaces.resolve(here, workspaces.normalize(options.workspace or "."))
        add_context(kubeconfig, context, path, found)

    return run(add())


def add_context(kubeconfig: Kubeconfig, context: str, path: str, found: argparse.Namespace) -> None:
    """Create or replace the context `found.name` for a workspace, and save the file. Raises Failure."""
    name = found.name or path
    existed = kubeconfig.has("context", name)
    if existed and not found.overwrite:
        raise Failure(f'context "{name}" already exists in kubeconfig, use --overwrite to update it')
    workspaces.create_context(kubeconfig, context, name, path)
    if not found.keep_current:
        kubeconfig.use(name)
    kubeconfig.save()
    say(f'{"Updated" if existed else "Created"} context "{name}"{"" if found.keep_current else " and switched to it"}.')


if __name__ == "__main__":
    main()
