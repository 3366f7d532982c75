"""ObjectMeta with its merge markers, for schemas that do not declare `metadata` (such as every CRD's)."""

from __future__ import annotations

from atoll.machinery.meta.objects import Object

_STRING: Object = {"type": "string"}
_STRINGS: Object = {"type": "object", "additionalProperties": _STRING}

_OWNER_REFERENCE: Object = {
    "type": "object",
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": _STRING,
        "kind": _STRING,
        "name": _STRING,
        "uid": _STRING,
        "controller": {"type": "boolean"},
        "blockOwnerDeletion": {"type": "boolean"},
    },
}

_MANAGED_FIELDS_ENTRY: Object = {
    "type": "object",
    "properties": {
        "manager": _STRING,
        "operation": _STRING,
        "apiVersion": _STRING,
        "time": _STRING,
        "fieldsType": _STRING,
        "fieldsV1": {"type": "object"},
        "subresource": _STRING,
    },
}

OBJECT_META: Object = {
    "type": "object",
    "properties": {
        "name": _STRING,
        "generateName": _STRING,
        "namespace": _STRING,
        "selfLink": _STRING,
        "uid": _STRING,
        "resourceVersion": _STRING,
        "generation": {"type": "integer"},
        "creationTimestamp": _STRING,
        "deletionTimestamp": _STRING,
        "deletionGracePeriodSeconds": {"type": "integer"},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "uid",
            "items": _OWNER_REFERENCE,
        },
        "finalizers": {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
            "items": _STRING,
        },
        "managedFields": {"type": "array", "items": _MANAGED_FIELDS_ENTRY},
    },
}
