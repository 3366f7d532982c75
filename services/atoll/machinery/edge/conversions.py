"""Conversions of EdgeSyncConfigs: objects that have another kind or name at the edge than in the mailbox.

A syncer renames what it reads from the mailbox before it plans, and status goes back by the returned references.
Invariant: an object that no rule names stays as it is, and of two that would become one at the edge the first by name
counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import ANY
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.types import CRDS


class Renamed(NamedTuple):
    """Objects as the edge has them, and the reference in the mailbox of each."""

    objects: dict[ObjectRef, Object]
    origins: dict[ObjectRef, ObjectRef]


def renamed(
    objects: Mapping[ObjectRef, Object], configs: Iterable[Object], resources: Mapping[tuple[str, str], str]
) -> Renamed:
    """Return the objects under the rules of these EdgeSyncConfigs, the first of which that fits counts.

    `resources` has the resource of each group and kind at the edge; a rule to a kind without one has no effect.
    """
    rules = [rule for config in configs for rule in spec_of(config).get("conversions") or ()]
    found = Renamed({}, {})
    for ref, obj in sorted(objects.items()):
        new, changed = _converted(ref, obj, rules, resources)
        if new not in found.objects:
            found.objects[new] = changed
            found.origins[new] = ref
    return found


def _converted(
    ref: ObjectRef, obj: Object, rules: Iterable[Object], resources: Mapping[tuple[str, str], str]
) -> tuple[ObjectRef, Object]:
    for rule in rules:
        up, down = rule["upstream"], rule["downstream"]
        group, kind = down.get("group") or "", down["kind"]
        resource = resources.get((group, kind))
        if resource is None or not _fits(ref, obj, up):
            continue
        name = ref.name if down["name"] == ANY else down["name"]
        namespace = ref.namespace if down.get("namespace") in (None, "", ANY) else down["namespace"]
        version = down.get("version") or obj["apiVersion"].rpartition("/")[2]
        return ObjectRef(group, resource, namespace, name), _as(obj, (group, version, kind), namespace, name)
    return ref, obj


def _fits(ref: ObjectRef, obj: Object, up: Object) -> bool:
    if (ref.group, obj["kind"]) != (up.get("group") or "", up["kind"]):
        return False
    return up["name"] in (ANY, ref.name) and up.get("namespace") in (None, "", ANY, ref.namespace)


def _as(obj: Object, type: tuple[str, str, str], namespace: str, name: str) -> Object:
    group, version, kind = type
    metadata = {**obj["metadata"], "name": name} | ({"namespace": namespace} if namespace else {})
    api_version = f"{group}/{version}" if group else version
    changed = {**obj, "apiVersion": api_version, "kind": kind, "metadata": metadata}
    if (group, kind) == (CRDS.group, "CustomResourceDefinition"):
        # The name of a definition says its group.
        changed["spec"] = {**spec_of(obj), "group": name.partition(".")[2]}
    return changed
