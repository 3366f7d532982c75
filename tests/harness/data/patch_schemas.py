"""A kind with every merge strategy, for the tests of patches and field ownership."""

from __future__ import annotations

import copy
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.managedfields.apply import apply_patch
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import ApplyOptions
from atoll.machinery.patch.managedfields.update import track_update
from atoll.machinery.patch.structuredmerge.object_meta import OBJECT_META
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

API_VERSION = "example.io/v1"
STRING: Object = {"type": "string"}
INTEGER: Object = {"type": "integer"}


def ref(name: str) -> Object:
    """The wrapped reference that Kubernetes publishes for struct fields."""
    return {"default": {}, "allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def keyed(items: Object, *keys: str) -> Object:
    """A list keyed by fields."""
    return {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": keys[0],
    }


def strings_by_name(**extra: Any) -> Object:
    return {"type": "object", "additionalProperties": STRING, **extra}


DEFINITIONS: dict[str, Object] = {
    "Meta": OBJECT_META,
    "Port": {
        "type": "object",
        "properties": {"port": INTEGER, "protocol": {"type": "string", "default": "TCP"}, "target": STRING},
    },
    "Item": {
        "type": "object",
        "properties": {
            "name": STRING,
            "image": STRING,
            "env": keyed(ref("Env"), "name"),
            "args": {"type": "array", "items": STRING},
            "limits": strings_by_name(),
        },
    },
    "Env": {"type": "object", "properties": {"name": STRING, "value": STRING}},
    "Tree": {"type": "object", "properties": {"label": STRING, "child": ref("Tree")}},
    "Struct": {
        "type": "object",
        "properties": {"x": STRING, "y": STRING, "deep": {"type": "object", "properties": {"z": STRING}}},
    },
    "Spec": {
        "type": "object",
        "properties": {
            "replicas": INTEGER,
            "paused": {"type": "boolean"},
            "text": STRING,
            "struct": ref("Struct"),
            "retained": {**ref("Struct"), "x-kubernetes-patch-strategy": "retainKeys"},
            "selector": {**ref("Struct"), "x-kubernetes-map-type": "atomic"},
            "replaced": {**ref("Struct"), "x-kubernetes-patch-strategy": "replace"},
            "map": strings_by_name(),
            "structs": {"type": "object", "additionalProperties": ref("Struct")},
            "atomicMap": strings_by_name(**{"x-kubernetes-map-type": "atomic"}),
            "list": {"type": "array", "items": STRING},
            "set": {
                "type": "array",
                "items": STRING,
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "items": keyed(ref("Item"), "name"),
            "ports": keyed(ref("Port"), "port", "protocol"),
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "amount": {"x-kubernetes-int-or-string": True},
            "tree": ref("Tree"),
            "template": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
    "Status": {
        "type": "object",
        "properties": {
            "phase": STRING,
            "conditions": keyed({"type": "object", "properties": {"type": STRING, "status": STRING}}, "type"),
        },
    },
    "Root": {"type": "object", "properties": {"metadata": ref("Meta"), "spec": ref("Spec"), "status": ref("Status")}},
}

SCHEMA = TypeSchema(DEFINITIONS["Root"], DEFINITIONS)


def thing(spec: Object | None = None, **metadata: Any) -> Object:
    """An object of the kind, named `n` in `ns`."""
    out: Object = {"apiVersion": API_VERSION, "kind": "Thing", "metadata": {"name": "n", "namespace": "ns", **metadata}}
    if spec is not None:
        out["spec"] = spec
    return out


class Live:
    """A stored object that managers write to, one second apart.

    Every write checks that its inputs stay as they were.
    """

    def __init__(self) -> None:
        self.obj: Object | None = None
        self._second = 0

    def _now(self) -> str:
        self._second += 1
        return f"2026-01-01T00:{self._second // 60:02}:{self._second % 60:02}Z"

    def apply(
        self, manager: str, patch: Object, *, force: bool = False, subresource: str = "", **options: Any
    ) -> Object:
        before = copy.deepcopy((self.obj, patch))
        who = Manager(manager, "Apply", patch.get("apiVersion", API_VERSION), subresource)
        try:
            obj = apply_patch(self.obj, patch, who, SCHEMA, ApplyOptions(force=force, now=self._now(), **options))
        finally:
            assert before == (self.obj, patch)
        self.obj = obj
        return obj

    def update(self, manager: str, new: Object, *, subresource: str = "", **options: Any) -> Object:
        before = copy.deepcopy(self.obj)
        new = copy.deepcopy(new)
        who = Manager(manager, "Update", API_VERSION, subresource)
        if options:
            from atoll.machinery.patch.managedfields.options import TrackOptions

            track_update(self.obj, new, who, SCHEMA, self._now(), TrackOptions(**options))
        else:
            track_update(self.obj, new, who, SCHEMA, self._now())
        assert before == self.obj
        self.obj = new
        return new

    def edit(self, manager: str, **spec: Any) -> Object:
        """Read, change fields of spec (None removes), write back, as a controller does."""
        assert self.obj is not None
        new = copy.deepcopy(self.obj)
        for name, value in spec.items():
            if value is None:
                new["spec"].pop(name)
            else:
                new["spec"][name] = value
        return self.update(manager, new)

    @property
    def spec(self) -> Object:
        assert self.obj is not None
        out: Object = self.obj["spec"]
        return out

    @property
    def entries(self) -> list[Object]:
        assert self.obj is not None
        return list(self.obj["metadata"].get("managedFields", []))

    def entry(self, manager: str, operation: str = "Apply") -> Object:
        found = [e for e in self.entries if (e["manager"], e["operation"]) == (manager, operation)]
        assert len(found) == 1, self.entries
        return found[0]

    def fields(self, manager: str, operation: str = "Apply") -> Object:
        out: Object = self.entry(manager, operation)["fieldsV1"]
        return out

    def managers(self) -> list[tuple[str, str]]:
        return [(entry["manager"], entry["operation"]) for entry in self.entries]
