"""The files that bootstrap reads: `schemas/crds` and `schemas/bootstrap`, read once per process.

Exports, policy and bootstrap ask here. The files ship with the product, so a broken one is an error of the
installation and raises what the YAML parser raises.
"""

from __future__ import annotations

from functools import cache

import yaml

from atoll.machinery.meta.objects import Object
from atoll.machinery.process.resources import schema_path


def _read(*parts: str) -> Object:
    with schema_path(*parts).open("rb") as file:
        value: Object = yaml.load(file, yaml.CSafeLoader)
    return value


@cache
def definition(name: str) -> Object:
    """The CustomResourceDefinition `<plural>.<group>`, without status. Shared: not to be changed."""
    plural, _, group = name.partition(".")
    return _read("crds", f"{group}_{plural}.yaml")


@cache
def bootstrap_file(name: str) -> Object:
    """`rbac`, `exports` or `workspacetypes`. Shared: not to be changed."""
    return _read("bootstrap", f"{name}.yaml")
