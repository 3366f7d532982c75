"""Categories of kinds: what is copied to mailboxes and edge clusters, what is stored apart, what is not for the edge.

The table is `schemas/edge/categories.yaml`. What resolution, the edge view and syncers ask here. Invariant: a kind has
one category, and a kind that the table does not list is a workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

import msgspec
import yaml

from atoll.machinery.process.resources import schema_path

#: The categories, as the table describes them.
DENATURED, DEFINITION, MAILBOX, REFUSED, CENTER, CONTROL = (
    "denatured",
    "definition",
    "mailbox",
    "refused",
    "center",
    "control",
)
WORKLOAD = "workload"
_ALL = "*"

#: Workspace and name of an APIExport.
ExportName: TypeAlias = tuple[str, str]

#: Namespaces that every Kubernetes cluster begins with.
NAMESPACES_OF_ALL = ("default", "kube-node-lease", "kube-public", "kube-system")


class BuiltIns(msgspec.Struct, frozen=True):
    """What every edge cluster and every mailbox has anyway: resources as `plural.group`, and namespaces.

    Definitions of these resources, the objects of these Namespaces, and bindings to these exports are not copied.
    """

    edge_resources: frozenset[str] = frozenset()
    edge_namespaces: frozenset[str] = frozenset(NAMESPACES_OF_ALL)
    mailbox_resources: frozenset[str] = frozenset()
    mailbox_exports: frozenset[ExportName] = frozenset()

    def has_definition(self, name: str) -> bool:
        """Whether the definition of a resource is not copied: what every mailbox has, every edge cluster has too."""
        return name in self.edge_resources or name in self.mailbox_resources


@cache
def _table() -> Mapping[tuple[str, str], str]:
    with schema_path("edge", "categories.yaml").open("rb") as file:
        categories = yaml.load(file, yaml.CSafeLoader)
    return {
        (group, resource): category
        for category, groups in categories.items()
        for group, resources in groups.items()
        for resource in resources
    }


def category_of(group: str, resource: str) -> str:
    """Return the category of a kind."""
    table = _table()
    return table.get((group, resource)) or table.get((group, _ALL), WORKLOAD)


def goes_to_mailbox(group: str, resource: str) -> bool:
    """Whether objects of a kind are copied into mailboxes."""
    return category_of(group, resource) in (WORKLOAD, DENATURED, DEFINITION, MAILBOX)


def goes_to_edge(group: str, resource: str) -> bool:
    """Whether objects of a kind go all the way."""
    return category_of(group, resource) in (WORKLOAD, DENATURED, DEFINITION)


def comes_up(group: str, resource: str) -> bool:
    """Whether objects of a kind may come from an edge cluster; those of DENATURED come denatured."""
    return category_of(group, resource) in (WORKLOAD, DENATURED)


def returns_status(group: str, resource: str) -> bool:
    """Whether the status at the edge is that of the object in the center: not for definitions."""
    return category_of(group, resource) in (WORKLOAD, DENATURED)


def is_in_edge_view(group: str, resource: str) -> bool:
    """Whether the edge view serves a kind; any other is 404 there and not in discovery."""
    return category_of(group, resource) not in (REFUSED, CENTER)
