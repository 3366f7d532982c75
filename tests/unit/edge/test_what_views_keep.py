"""What controllers keep of objects of which there is one for each edge cluster: what they use, and little of it."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from atoll.edge import mailboxes, where_resolver
from atoll.edge.heartbeats import HEALTHY
from atoll.edge.kinds import LOCATIONS, SYNC_TARGETS, SYNCER_CONFIGS
from atoll.edge.mailboxes import TARGET_NAME, TARGET_UID, is_mailbox, kept_workspace
from atoll.edge.placement_translator import translator
from atoll.edge.where_resolver import DECODED
from atoll.machinery.client.informer import Head, Keep, Parts, head, key_of, unmanaged
from atoll.machinery.edge.customization import parameters_of
from atoll.machinery.edge.where import location_of, sync_target_of
from atoll.machinery.meta.conditions import find
from atoll.machinery.meta.objects import Object, conditions_of
from atoll.machinery.meta.wellknown import CLUSTER

METADATA = {
    "name": "inv-mb-u",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-01T00:00:00Z",
    "generation": 3,
    "labels": {"a": "b"},
    "annotations": {CLUSTER: "inv", TARGET_NAME: "t", TARGET_UID: "u", "other": "x" * 100},
    "managedFields": [{"manager": "m"}],
}
CONDITIONS = [{"type": HEALTHY, "status": "False", "message": "x" * 100}, {"type": "Ready", "status": "False"}]
SPEC = {"cluster": "c", "instanceSelector": {"matchLabels": {"a": "b"}}, "unschedulable": True, "type": {"name": "t"}}
OBJECT: Object = {"metadata": METADATA, "spec": SPEC, "status": {"phase": "Ready", "conditions": CONDITIONS}}
#: Whoever keeps these does not ask whether they go.
LASTING = (head, translator._KEPT[LOCATIONS])
KEEPS = [each for kept in (mailboxes, where_resolver, translator) for each in kept._KEPT.values()]


def test_a_workspace_is_kept_as_a_mailbox() -> None:
    kept = kept_workspace(OBJECT)
    assert is_mailbox(kept)
    assert (kept["spec"], kept["status"]) == ({"cluster": "c"}, {"phase": "Ready"})
    assert not is_mailbox(kept_workspace({**OBJECT, "metadata": {"name": "x", "resourceVersion": "1"}}))


def test_destinations_are_resolved_by_what_is_kept() -> None:
    location, target = (where_resolver._KEPT[kind](OBJECT) for kind in (LOCATIONS, SYNC_TARGETS))
    assert location[DECODED] == location_of("inv", OBJECT)
    assert location["status"] == OBJECT["status"]
    assert target[DECODED] == sync_target_of("inv", OBJECT)
    assert "spec" not in {*location, *target}


def test_parameters_and_silence_are_kept() -> None:
    location, target, config = (translator._KEPT[kind](OBJECT) for kind in (LOCATIONS, SYNC_TARGETS, SYNCER_CONFIGS))
    assert parameters_of(location) == parameters_of(OBJECT)
    assert location.keys() == {"metadata"}
    healthy = find(conditions_of(target), HEALTHY)
    assert healthy is not None
    assert healthy["status"] == "False"
    assert translator._KEPT[SYNC_TARGETS]({**OBJECT, "status": {}})["status"] == {}
    assert config["spec"] == {}
    assert "managedFields" not in config["metadata"]


def test_annotations_of_a_cluster_alone_are_in_common() -> None:
    plain = ({**METADATA, "annotations": {CLUSTER: "inv"}} for _ in range(2))
    first, second = (translator._KEPT[LOCATIONS]({**OBJECT, "metadata": each}) for each in plain)
    assert first["metadata"]["annotations"] is second["metadata"]["annotations"]


@pytest.mark.parametrize("keep", [head, unmanaged, kept_workspace, *KEEPS])
def test_nothing_that_is_kept_is_left_out_as_it_arrives(keep: Keep) -> None:
    more = {"generateName": "g", "namespace": "n", "deletionGracePeriodSeconds": 1, "ownerReferences": [{"uid": "o"}]}
    whole = {"apiVersion": "v1", "kind": "Thing", **OBJECT, "metadata": {**METADATA, **more, "finalizers": ["f"]}}
    reduced = msgspec.convert(whole, Head if keep is head else Parts)
    assert keep(cast(Object, reduced)) == keep(whole)
    assert "managedFields" not in reduced["metadata"]


@pytest.mark.parametrize("keep", [head, kept_workspace, *KEEPS])
def test_key_revision_and_deletion_are_kept_and_clusters_in_common(keep: Keep) -> None:
    first, second = (keep({**OBJECT, "metadata": {**METADATA, "resourceVersion": each}}) for each in "78")
    assert (key_of(first), key_of(second)) == (key_of(OBJECT), key_of(OBJECT))
    assert [each["metadata"]["resourceVersion"] for each in (first, second)] == ["7", "8"]
    assert keep in LASTING or "deletionTimestamp" in first["metadata"]
    if len(first["metadata"]["annotations"]) == 1:
        assert first["metadata"]["annotations"] is second["metadata"]["annotations"]
