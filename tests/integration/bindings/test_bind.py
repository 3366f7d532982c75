"""Binding an export: from POST to Bound and served."""

from __future__ import annotations

from harness.clients.api import Api
from harness.clients.exports import SCHEMAS, an_object, bind, make_export, objects_path, schema, unbind

CIRCLES = schema("circles")


def test_a_plain_binding_is_bound_and_served(provider: Api, consumer: Api) -> None:
    exported = make_export(provider, "shapes", CIRCLES)
    bound = bind(consumer, provider.cluster, "shapes")
    uid = provider.get(f"{SCHEMAS}/{CIRCLES['metadata']['name']}").json["metadata"]["uid"]
    assert bound["status"]["boundResources"] == [
        {
            "group": "shapes.example.com",
            "resource": "circles",
            "storageVersions": ["v1"],
            "schema": {
                "name": CIRCLES["metadata"]["name"],
                "UID": uid,
                "identityHash": exported["status"]["identityHash"],
            },
        }
    ]
    path = objects_path(CIRCLES)
    consumer.post(path, an_object(CIRCLES, "one"))
    assert [each["metadata"]["name"] for each in consumer.get(path).json["items"]] == ["one"]
    unbind(consumer, "shapes")
    consumer.get(path, expect=404)
