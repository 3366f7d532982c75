"""PartitionSets: shards divided by the values of their labels, a Partition for each combination that occurs.

The controller brings the set, the shards and the Partitions that the set owns, and makes and removes what comes back.
Nothing here reads or writes. The same shards give the same Partitions, but for the random end of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from atoll.machinery.meta.conditions import ERROR, FALSE, TRUE, Condition, with_conditions
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector

SET_VALID, READY = "PartitionSetValid", "PartitionsReady"
INVALID_SELECTOR, GENERATING_FAILED = "InvalidSelector", "ErrorGeneratingPartitions"
API_VERSION = "topology.kcp.io/v1alpha1"
_MAX_NAME = 252


class PartitionPlan(msgspec.Struct, frozen=True):
    """What a set asks for: Partitions to create, names of those to delete, and how many there are then."""

    create: tuple[Object, ...]
    delete: tuple[str, ...]
    count: int


def plan(obj: Object, shards: Iterable[Mapping[str, str]], owned: Sequence[Object]) -> PartitionPlan:
    """Compare a set with the labels of all shards and the Partitions it owns. Raises SelectorError.

    Of Partitions that select alike the first by name stays. A shard that lacks a dimension belongs to none; a set that
    names neither dimensions nor labels has none, as in kcp.
    """
    spec = spec_of(obj)
    chosen = spec.get("shardSelector")
    selector = compile_label_selector(chosen) if chosen is not None else LabelSelector()
    chosen = chosen or {}
    keys = sorted({*(spec.get("dimensions") or ()), *(chosen.get("matchLabels") or ())})
    wanted: dict[tuple[str, ...], Object] = {}
    for labels in shards:
        if keys and selector.matches(labels) and all(key in labels for key in keys):
            values = {key: labels[key] for key in keys}
            wanted[tuple(values.values())] = _selector(values, chosen.get("matchExpressions"))
    present, surplus = _compare(owned, list(wanted.values()))
    missing = [each for each in wanted.values() if each not in present]
    return PartitionPlan(tuple(_partition(obj, each) for each in missing), tuple(surplus), len(wanted))


def _selector(labels: Mapping[str, str], expressions: list[Object] | None) -> Object:
    return {"matchLabels": dict(labels), **({"matchExpressions": expressions} if expressions else {})}


def _compare(owned: Sequence[Object], wanted: list[Object]) -> tuple[list[Object], list[str]]:
    """Return the wanted selectors that have a Partition, and the names of Partitions to delete."""
    present: list[Object] = []
    surplus: list[str] = []
    for each in sorted(owned, key=lambda partition: str(partition["metadata"]["name"])):
        given = spec_of(each).get("selector") or {}
        found = _selector(given.get("matchLabels") or {}, given.get("matchExpressions"))
        if found in wanted and found not in present:
            present.append(found)
        else:
            surplus.append(each["metadata"]["name"])
    return present, surplus


def _partition(obj: Object, selector: Object) -> Object:
    metadata = obj["metadata"]
    owner = {
        "apiVersion": API_VERSION,
        "kind": "PartitionSet",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Partition",
        "metadata": {"generateName": _generate_name(obj, selector["matchLabels"]), "ownerReferences": [owner]},
        "spec": {"selector": selector},
    }


def _generate_name(obj: Object, labels: Mapping[str, str]) -> str:
    """The set's name and the values of its dimensions. Label values may hold underscores, which names may not."""
    dimensions = sorted(set(spec_of(obj).get("dimensions") or ()))
    parts = [obj["metadata"]["name"], *(labels[key].lower().replace("_", "-") for key in dimensions)]
    return "-".join(parts)[:_MAX_NAME] + "-"


def ready_status(status: Object, count: int, now: str) -> Object:
    """Return a set's status when its Partitions are complete."""
    return with_conditions({**status, "count": count}, now, Condition(SET_VALID, TRUE), Condition(READY, TRUE))


def invalid_status(status: Object, error: SelectorError, now: str) -> Object:
    """Return a set's status for an invalid selector; its Partitions are kept."""
    said = (
        Condition(SET_VALID, FALSE, INVALID_SELECTOR, error.message, ERROR),
        Condition(READY, FALSE, GENERATING_FAILED, "", ERROR),
    )
    return with_conditions(status, now, *said)


def failed_status(status: Object, why: str, now: str) -> Object:
    """Return a set's status when a Partition could not be created or deleted."""
    said = Condition(SET_VALID, TRUE), Condition(READY, FALSE, GENERATING_FAILED, why, ERROR)
    return with_conditions(status, now, *said)
