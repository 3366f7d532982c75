"""What resolution: which objects of a workload workspace go down, for which EdgePlacements, with their definers.

The placement translator calls `selection` for each object that changed, for each object of a Namespace whose labels
changed, and for all when a placement changed; `definers` then for the kinds selected. Invariant: the result depends on
the placements and the object as they are now, never on what was selected before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from atoll.machinery.edge.categories import DENATURED, BuiltIns, ExportName, category_of, goes_to_mailbox
from atoll.machinery.edge.names import GROUP, ObjectRef
from atoll.machinery.edge.placements import Placement
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import Object, conditions_of, labels_of, spec_of, status_of
from atoll.machinery.meta.types import API_BINDINGS, CRDS, NAMESPACES

_DEFINITION = (CRDS.group, CRDS.resource)
_BINDING = (API_BINDINGS.group, API_BINDINGS.resource)
_NAMESPACE = (NAMESPACES.group, NAMESPACES.resource)


class Selection(msgspec.Struct, frozen=True):
    """The names of the placements that send an object down, sorted; `wants_singleton` if any of them asks for it."""

    placements: tuple[str, ...] = ()
    wants_singleton: bool = False

    def __or__(self, other: Selection) -> Selection:
        names = tuple(sorted({*self.placements, *other.placements}))
        return Selection(names, self.wants_singleton or other.wants_singleton)


NONE = Selection()


def selection(
    placements: Iterable[Placement], ref: ObjectRef, obj: Object, namespace: Object | None, built_ins: BuiltIns
) -> Selection:
    """Return which placements send an object down.

    `namespace` is the Namespace of a namespaced object, None while it is not there. What is being deleted goes nowhere.
    """
    if not is_copied(ref, obj, built_ins):
        return NONE
    labels, namespace_labels = labels_of(obj), None if namespace is None else labels_of(namespace)
    found = [each for each in placements if each.selects(ref, labels, namespace_labels)]
    return Selection(tuple(sorted(each.name for each in found)), any(each.wants_singleton for each in found))


def is_copied(ref: ObjectRef, obj: Object, built_ins: BuiltIns) -> bool:
    """Whether an object is copied to mailboxes if a placement selects it."""
    if not goes_to_mailbox(ref.group, ref.resource) or is_system_object(ref, obj):
        return False
    if "deletionTimestamp" in obj["metadata"]:
        return False
    if ref.kind == _NAMESPACE:
        return ref.name not in built_ins.edge_namespaces
    if ref.kind == _DEFINITION:
        return not built_ins.has_definition(ref.name) and bool(defined_kinds(obj))
    return ref.kind != _BINDING or not (is_edge_binding(obj) or _is_bound_anyway(obj, built_ins))


def is_edge_binding(binding: Object) -> bool:
    """Whether an APIBinding is that of the edge API itself, which every mailbox has of its own."""
    reference = spec_of(binding).get("reference") or {}
    return (reference.get("export") or {}).get("name") == GROUP


def export_of(binding: Object) -> ExportName:
    """Return the workspace and the name of the export of a binding, as the binding names them."""
    export = (spec_of(binding).get("reference") or {}).get("export") or {}
    return str(export.get("path") or ""), str(export.get("name") or "")


def _is_bound_anyway(binding: Object, built_ins: BuiltIns) -> bool:
    """Whether every mailbox has a binding to the same export. Its workspace may be named by its logical cluster."""
    written, export = export_of(binding)
    places = {written, status_of(binding).get("apiExportClusterName")}
    return any(name == export and path in places for path, name in built_ins.mailbox_exports)


def definers(
    selected: Mapping[tuple[str, str], Selection],
    definitions: Iterable[Object],
    bindings: Iterable[Object],
    built_ins: BuiltIns,
) -> dict[ObjectRef, Selection]:
    """Return the CRDs and APIBindings that define the kinds of selected objects, for the placements of these.

    `selected` are kinds, as group and resource, with the union of the selections of their objects. A definition counts
    once it is established, a binding once it is bound; none asks for singleton status.
    """
    found: dict[ObjectRef, Selection] = {}
    for types, objs in ((_DEFINITION, definitions), (_BINDING, bindings)):
        for obj in objs:
            ref = ObjectRef(*types, "", obj["metadata"]["name"])
            needed = [
                kind for kind in defined_kinds(obj) if kind in selected and _needs_definition(kind, types, built_ins)
            ]
            names = {name for kind in needed for name in selected[kind].placements}
            if names and is_copied(ref, obj, built_ins):
                found[ref] = Selection(tuple(sorted(names)))
    return found


def _needs_definition(kind: tuple[str, str], definer: tuple[str, str], built_ins: BuiltIns) -> bool:
    """Whether mailboxes serve a kind only with its definer; denatured ones are served by their view."""
    group, resource = kind
    name = f"{resource}.{group}" if group else resource
    has_it = definer == _BINDING and name in built_ins.mailbox_resources
    return not has_it and category_of(group, resource) != DENATURED


def defined_kinds(obj: Object) -> list[tuple[str, str]]:
    """Return the kinds that an established CRD or a bound APIBinding defines."""
    spec, status = spec_of(obj), status_of(obj)
    if "names" in spec:
        is_established = is_true(conditions_of(obj), "Established")
        return [(spec["group"], spec["names"]["plural"])] if is_established else []
    if status.get("phase") != "Bound":
        return []
    return [(row.get("group") or "", row["resource"]) for row in status.get("boundResources") or ()]


def is_another_kind(wanted: Object, live: Object) -> bool:
    """Whether a CRD cannot become this one in place: it keeps its scope and its kind. Other objects can."""
    one, other = spec_of(wanted), spec_of(live)
    if "names" not in one or "names" not in other:
        return False
    return (one.get("scope"), one["names"].get("kind")) != (other.get("scope"), other["names"].get("kind"))
