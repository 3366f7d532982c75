"""`kubectl kubestellar customize`: an object as it would be at one location, without sending it.

The object comes from a file, its Customizer from a file or the current workspace, the Location from an inventory.
Invariant: it has the rules of the placement translator, so what it refuses is not sent.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from atoll.cli.kubectl.kubestellar import flags
from atoll.cli.kubectl.plugin import Failure, warn
from atoll.edge.kinds import CUSTOMIZERS, LOCATIONS
from atoll.machinery.client.client import Client
from atoll.machinery.edge.customization import CustomizationError, customized, customizer_of, parameters_of
from atoll.machinery.edge.projection import render
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound


def add_commands(commands: flags.Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    found = flags.command(commands, "customize", "print an object as it would be at one location", _customize)
    found.add_argument("-f", dest="file", required=True, metavar="FILE", help='the object, YAML or JSON; "-" is stdin')
    found.add_argument("--customizer", default="", metavar="FILE", help="its Customizer; else that of the workspace")
    found.add_argument("--location", required=True, metavar="NAME", help="Location whose parameters count")
    flags.inventory(found)


async def _customize(options: argparse.Namespace) -> None:
    obj, rules = _loaded(options.file), _loaded(options.customizer) if options.customizer else None
    for row in rules.get("replacements") or () if rules is not None else ():
        if not all(isinstance(row.get(field), str) for field in ("path", "value")):
            raise Failure(f"{options.customizer}: a replacement has no path or no value that is a text")
    here, _, _ = flags.connect(options)
    there, _, _ = flags.connect(options, options.imw)
    async with here, there:
        rules = rules or await _customizer(here, obj)
        location = await there.get(LOCATIONS, options.location)
    try:
        found = customized(obj, rules, parameters_of(location))
    except CustomizationError as error:
        raise Failure(str(error)) from error
    if found.undefined:
        warn(f'Location "{options.location}" does not define {", ".join(found.undefined)}')
    sys.stdout.write(yaml.safe_dump(render(found.obj, {}), sort_keys=False, allow_unicode=True))


async def _customizer(client: Client, obj: Object) -> Object | None:
    ref = customizer_of(obj)
    if ref is None:
        return None
    if not ref.namespace:
        raise Failure(f'Customizer "{ref.name}" is not named by namespace and name')
    try:
        return await client.get(CUSTOMIZERS, ref.name, ref.namespace)
    except NotFound as error:
        raise Failure(f"Customizer {ref.namespace}/{ref.name} is not there") from error


def _loaded(file: str) -> Object:
    """Return the only object of a file. Raises Failure."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        found: Any = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Failure(f"{file}: {error}") from error
    objs = [each for each in found if each is not None]
    if len(objs) != 1 or not isinstance(objs[0], dict) or not isinstance((objs[0].get("metadata") or 0), dict):
        raise Failure(f"{file} does not have one object")
    obj: Object = objs[0]
    if not all(isinstance(each, str) for each in (obj.get("apiVersion"), obj.get("kind"), obj["metadata"].get("name"))):
        raise Failure(f"{file}: the object has no apiVersion, kind or name")
    return obj
