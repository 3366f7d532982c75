"""Reconciliation of stored bootstrap objects; additions by users are kept.

The shard calls this at each start for manifests marked `reconciled`. As in Kubernetes' reconciliation of default RBAC,
missing rules and subjects are restored, additional ones stay, and an object with annotation autoupdate `false` is not
changed. Invariant: a restart without changes writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.machinery.meta.objects import Object, annotations_of, status_of

AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_TOP = ("apiVersion", "kind", "metadata")


def reconciled(stored: Object, wanted: Object) -> Object | None:
    """Return the object to write in place of `stored`; None if nothing changes.

    Identity, finalizers and other labels and annotations are kept. The generation is incremented if anything except
    metadata and status changes. Unchanged conditions keep their times.
    """
    annotations = annotations_of(stored)
    if annotations.get(AUTO_UPDATE) == "false":
        return None
    body = {key: value for key, value in wanted.items() if key not in _TOP}
    if "status" in wanted:
        body["status"] = _status(status_of(stored), wanted["status"])
    for field in ("rules", "subjects"):
        if field in wanted:
            body[field] = _with_missing(stored, wanted, field)
    result = {**stored, **body, "apiVersion": wanted["apiVersion"]}
    changed = any(result.get(key) != stored.get(key) for key in body if key != "status")
    result["metadata"] = _metadata(stored["metadata"], wanted["metadata"], changed)
    return None if result == stored else result


def _metadata(stored: Object, wanted: Object, changed: bool) -> Object:
    merged = dict(stored)
    for field in ("labels", "annotations"):
        if field in wanted:
            merged[field] = {**(stored.get(field) or {}), **wanted[field]}
    if changed:
        merged["generation"] = stored.get("generation", 0) + 1
    return merged


def _with_missing(stored: Object, wanted: Object, field: str) -> list[Object]:
    present: list[Object] = stored.get(field) or []
    if field == "rules" and "aggregationRule" in stored:
        return present
    return [*present, *(entry for entry in wanted[field] if entry not in present)]


def _status(stored: Mapping[str, object], wanted: Object) -> Object:
    status: Object = {**stored, **wanted}
    if "conditions" in wanted:
        status["conditions"] = _conditions(stored, wanted["conditions"])
    return status


def _conditions(stored: Mapping[str, object], wanted: list[Object]) -> list[Object]:
    present = stored.get("conditions")
    conditions: list[Object] = list(present) if isinstance(present, list) else []
    for said in wanted:
        places = [place for place, each in enumerate(conditions) if each["type"] == said["type"]]
        if not places:
            conditions.append(said)
        elif not _is_same_condition(conditions[places[0]], said):
            conditions[places[0]] = said
    return conditions


def _is_same_condition(stored: Object, wanted: Object) -> bool:
    """Whether a condition has the wanted fields; its time, and fields added by a controller, are not compared."""
    return all(stored.get(key) == value for key, value in wanted.items() if key != "lastTransitionTime")
