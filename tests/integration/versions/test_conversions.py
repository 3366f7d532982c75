"""APIConversions: consumers read and write every served version of a bound API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.clients.api import APPLY, TABLE, Api, Object, eventually
from harness.clients.exports import (
    CONVERSIONS,
    accepted,
    bind,
    claim,
    cluster_of,
    identity_of,
    make_export,
    schema,
    wait,
)

NAME = "two.crates.shapes.example.com"
V1 = "/apis/shapes.example.com/v1/namespaces/default/crates"
V2 = "/apis/shapes.example.com/v2/namespaces/default/crates"
PRESERVED = "preserve.conversion.apis.kcp.io/"
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def crates(storage: str = "v1", **conversion: Any) -> Object:
    """A schema in two versions: v1 has `width` and `label`, v2 `size.width`, `label` in capitals, and `note`."""
    inner = {
        "v1": {"width": NUMBER, "label": TEXT},
        "v2": {
            "size": {"type": "object", "properties": {"width": NUMBER}},
            "loud": TEXT,
            "note": TEXT,
            "kept": {"type": "object", "additionalProperties": TEXT},
        },
    }
    made = schema("crates", prefix="two")
    made["spec"]["versions"] = [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": inner[name]},
                    "status": {"type": "object", "properties": {"phase": TEXT}},
                },
            },
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Width", "type": "integer", "jsonPath": path}],
        }
        for name, path in (("v1", ".spec.width"), ("v2", ".spec.size.width"))
    ]
    made["spec"]["conversion"] = conversion or {"strategy": "None"}
    return made


def rule(field: str, destination: str, transformation: str = "") -> Object:
    found = {"field": field, "destination": destination}
    return {**found, "transformation": transformation} if transformation else found


def rules(loud: str = "self.upperAscii()") -> Object:
    forth = [rule(".spec.width", ".spec.size.width"), rule(".spec.label", ".spec.loud", loud)]
    back = [rule("spec.size.width", "spec.width"), rule("spec.loud", "spec.label", "self.lowerAscii()")]
    directions = [
        {"from": "v1", "to": "v2", "rules": forth},
        {"from": "v2", "to": "v1", "rules": back, "preserve": [".spec.note", "spec.kept"]},
    ]
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIConversion",
        "metadata": {"name": NAME},
        "spec": {"conversions": directions},
    }


def crate(name: str, version: str, **spec: Any) -> Object:
    return {"apiVersion": f"shapes.example.com/{version}", "kind": "Crate", "metadata": {"name": name}, "spec": spec}


def offered(provider: Api, made: Object | None = None) -> None:
    make_export(provider, "crates", made or crates())
    provider.post(CONVERSIONS, rules())


@pytest.fixture
def bound(provider: Api, consumer: Api) -> Api:
    """A consumer of crates in both versions."""
    offered(provider)
    bind(consumer, cluster_of(provider), "crates")
    return consumer


def test_an_object_is_read_and_written_in_every_version(bound: Api) -> None:
    made = bound.post(V2, crate("a", "v2", size={"width": 3}, loud="HELLO")).json
    assert made["spec"] == {"size": {"width": 3}, "loud": "HELLO"}
    there = bound.get(f"{V1}/a").json
    assert there["spec"] == {"width": 3, "label": "hello"}
    assert there["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    bound.patch(f"{V1}/a", {"spec": {"width": 4, "label": "bye"}})
    assert bound.get(f"{V2}/a").json["spec"] == {"size": {"width": 4}, "loud": "BYE"}
    bound.patch(f"{V2}/a/status", {"status": {"phase": "Open"}})
    found = bound.get(f"{V1}/a").json
    assert (found["status"], found["metadata"]["generation"]) == ({"phase": "Open"}, 2)
    again = bound.put(f"{V2}/a", bound.get(f"{V2}/a").json).json
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


def test_what_a_version_has_no_place_for_is_kept_and_comes_back(bound: Api) -> None:
    bound.post(V2, crate("kept", "v2", size={"width": 1}, note="remember", kept={"a": "b"}))
    old = bound.get(f"{V1}/kept").json
    assert json.loads(old["metadata"]["annotations"][f"{PRESERVED}v2"]) == {
        "spec.note": "remember",
        "spec.kept": {"a": "b"},
    }
    bound.put(f"{V1}/kept", {**old, "spec": {**old["spec"], "width": 2}})
    new = bound.get(f"{V2}/kept").json
    assert new["spec"] == {"size": {"width": 2}, "note": "remember", "kept": {"a": "b"}}
    assert PRESERVED not in json.dumps(new["metadata"]["annotations"])


def test_only_declared_fields_come_back_from_the_annotation(bound: Api) -> None:
    made = crate("sneaky", "v1", width=1)
    note = {"metadata.name": "other", "metadata.uid": "mine", "spec.loud": "x", "spec.note": "fine"}
    made["metadata"]["annotations"] = {f"{PRESERVED}v2": json.dumps(note)}
    bound.post(V1, made)
    found = bound.get(f"{V2}/sneaky").json
    assert found["metadata"]["name"] == "sneaky" and found["metadata"]["uid"] != "mine"
    assert found["spec"] == {"size": {"width": 1}, "note": "fine"}
    made["metadata"] = {"name": "odd", "annotations": {f"{PRESERVED}v2": "no JSON"}}
    bound.post(V1, made)
    assert bound.get(f"{V2}/odd").json["spec"] == {"size": {"width": 1}}


def test_lists_watches_and_tables_are_converted(bound: Api) -> None:
    for number in range(3):
        bound.post(V1, crate(f"l{number}", "v1", width=number, label="x"))
    found = bound.get(V2).json["items"]
    assert [each["spec"] for each in found] == [{"size": {"width": n}, "loud": "X"} for n in range(3)]
    assert {each["apiVersion"] for each in found} == {"shapes.example.com/v2"}
    table = bound.get(V2, accept=TABLE).json
    assert [row["cells"] for row in table["rows"]] == [[f"l{n}", n] for n in range(3)]
    with bound.watch(f"{V2}?watch=1&resourceVersion={bound.get(V2).json['metadata']['resourceVersion']}") as events:
        bound.post(V1, crate("w", "v1", width=7, label="y"))
        assert events.next().object["spec"] == {"size": {"width": 7}, "loud": "Y"}
        bound.delete(f"{V1}/w")
        gone = events.next()
    assert (gone.type, gone.object["spec"]["loud"]) == ("DELETED", "Y")


def test_applies_in_two_versions_own_what_they_applied(bound: Api) -> None:
    bound.patch(f"{V1}/owned?fieldManager=old", crate("owned", "v1", width=1), APPLY, expect=201)
    bound.patch(f"{V2}/owned?fieldManager=new", crate("owned", "v2", note="mine"), APPLY)
    conflict = bound.patch(f"{V2}/owned?fieldManager=new", crate("owned", "v2", size={"width": 2}), APPLY, expect=409)
    assert 'conflict with "old"' in conflict.message
    bound.patch(f"{V2}/owned?fieldManager=new&force=true", crate("owned", "v2", size={"width": 2}), APPLY)
    found = bound.get(f"{V1}/owned").json
    assert found["spec"] == {"width": 2}
    assert [each["manager"] for each in found["metadata"]["managedFields"]] == ["new"]


def test_a_change_of_the_rules_is_seen_at_once_and_ends_watches(provider: Api, bound: Api) -> None:
    bound.post(V1, crate("a", "v1", label="abc"))
    assert bound.get(f"{V2}/a").json["spec"]["loud"] == "ABC"
    with bound.watch(f"{V2}?watch=1") as events:
        events.until("ADDED")
        provider.put(f"{CONVERSIONS}/{NAME}", {**rules("self + '!'"), "metadata": _metadata(provider)})
        assert events.rest() == []
    assert bound.get(f"{V2}/a").json["spec"]["loud"] == "abc!"
    provider.delete(f"{CONVERSIONS}/{NAME}")
    assert bound.get(f"{V2}/a").json["spec"] == {}
    provider.post(CONVERSIONS, rules())
    assert bound.get(f"{V2}/a").json["spec"]["loud"] == "ABC"


def _metadata(provider: Api) -> Object:
    found: Object = provider.get(f"{CONVERSIONS}/{NAME}").json["metadata"]
    return found


def test_a_transformation_that_fails_says_so(provider: Api, bound: Api) -> None:
    bound.post(V1, crate("fine", "v1", label="7"))
    bound.post(V1, crate("bad", "v1", label="seven"))
    provider.put(f"{CONVERSIONS}/{NAME}", {**rules("string(int(self))"), "metadata": _metadata(provider)})
    assert bound.get(f"{V2}/fine").json["spec"]["loud"] == "7"
    lead = "conversion for shapes.example.com/v2, Kind=Crate failed: error converting: spec.label:"
    assert lead in bound.get(f"{V2}/bad", expect=500).message
    assert lead in bound.get(V2, expect=500).message
    # The stored version needs no conversion, and objects that cannot be converted can be deleted.
    assert bound.get(f"{V1}/bad").json["spec"] == {"label": "seven"}
    bound.delete(f"{V2}/bad", expect=0)
    eventually(lambda: bound.get(f"{V1}/bad", expect=0).code == 404, "bad gone")


def test_an_expensive_transformation_is_cut_and_harms_nobody(provider: Api, bound: Api) -> None:
    bound.post(V1, crate("long", "v1", label="x" * 200))
    many = "[" + ",".join("0" for _ in range(90)) + "]"
    costly = f"{many}.all(a, {many}.all(b, {many}.all(c, {many}.all(d, self != 'y')))) ? self : self"
    provider.put(f"{CONVERSIONS}/{NAME}", {**rules(costly), "metadata": _metadata(provider)})
    assert "cost limit exceeded" in bound.get(f"{V2}/long", expect=500).message
    assert bound.get(f"{V1}/long").code == 200


def test_a_provider_sees_its_consumers_objects_converted(master: Api, provider: Api, bound: Api) -> None:
    bound.post(V1, crate("mine", "v1", width=5, label="x"))
    everywhere = Api(master.shard, "*", "shard-admin")
    hashed = identity_of(provider, "crates")
    found = everywhere.get(f"/apis/shapes.example.com/v2/crates:{hashed}").json["items"]
    assert [each["spec"] for each in found] == [{"size": {"width": 5}, "loud": "X"}]
    provider.delete(f"{CONVERSIONS}/{NAME}")
    found = everywhere.get(f"/apis/shapes.example.com/v2/crates:{hashed}").json["items"]
    everywhere.close()
    assert [each["spec"] for each in found] == [{}]


def test_the_newer_version_may_be_the_stored_one(provider: Api, consumer: Api) -> None:
    offered(provider, crates("v2"))
    bind(consumer, cluster_of(provider), "crates")
    consumer.post(V2, crate("a", "v2", size={"width": 1}, loud="LOUD", note="n"))
    old = consumer.get(f"{V1}/a").json
    assert old["spec"] == {"width": 1, "label": "loud"}
    consumer.patch(f"{V1}/a", {"spec": {"width": 2}})
    assert consumer.get(f"{V2}/a").json["spec"] == {"size": {"width": 2}, "loud": "LOUD", "note": "n"}


def test_claims_and_conversions_do_not_meet(provider: Api, consumer: Api) -> None:
    """A binding with claims serves the same versions."""
    asked = claim("configmaps")
    make_export(provider, "crates", crates(), claims=[asked])
    provider.post(CONVERSIONS, rules())
    bind(consumer, cluster_of(provider), "crates", [accepted(asked)])
    consumer.post(V2, crate("a", "v2", loud="A"))
    wait(consumer, f"{V1}/a", lambda obj: obj["spec"] == {"label": "a"})
