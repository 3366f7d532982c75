"""The forms of subscriptions that a shard reads and writes are those of the schema that clients read."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from atoll.machinery.process.resources import schema_path
from atoll.machinery.stream.tenants.subscriptions import (
    Control,
    Lag,
    Mark,
    Refused,
    Selected,
    StreamPart,
    Subscription,
    SubscriptionList,
    SubscriptionRequest,
    Token,
)

SCHEMA: dict[str, Any] = json.loads(schema_path("events", "subscriptions.schema.json").read_text())
MARK = Mark("2026-11-27T00:00:00.000000001Z", "b7c0aa31", 7)
PART = StreamPart("root", "atoll-changes-root", ("atoll.changes.root.-",), MARK)
SUBSCRIPTION = Subscription(
    name="audit",
    cluster="2x9k4vtw",
    state="Active",
    reason="",
    resources=(Selected("", "configmaps", "core", False),),
    refused=(Refused("apps", "deployments", "Forbidden", "watch in the whole cluster is needed"),),
    consumer="abc-0",
    streams=(PART,),
    api_prefix="events.API",
    inbox_prefix="_INBOX_x",
    control="_INBOX_x.control",
    servers=("tls://events.example.com:4222",),
    ca="",
    event_keys={"root": ("k",)},
    ack_wait="30s",
    max_ack_pending=1000,
    lag=Lag(3, 1.5),
)
ANSWERS = {
    "subscription": SUBSCRIPTION,
    "list": SubscriptionList((SUBSCRIPTION,)),
    "token": Token("a.b.c", "2026-11-27T00:15:00Z"),
    "control": Control("Revoked", "may not watch configmaps", "audit", (PART,)),
}
GOOD = [
    {"name": "audit", "resources": ["configmaps", "deployments.apps"]},
    {"name": "a", "resources": ["gadgets.example.com"], "identity": "3f" * 32, "since": "30m", "full": True},
    {"name": "a", "resources": ["secrets"], "since": {"created": "x", "lineage": "y", "sequence": 1}},
]
BAD = [
    {"name": "audit"},
    {"name": "Audit", "resources": ["configmaps"]},
    {"name": "a" * 64, "resources": ["configmaps"]},
    {"name": "audit", "resources": []},
    {"name": "audit", "resources": ["configmaps"] * 17},
    {"name": "audit", "resources": ["*"]},
    {"name": "audit", "resources": ["configmaps.>"]},
    {"name": "audit", "resources": ["*.apps"]},
    {"name": "audit", "resources": ["configmaps"], "identity": "core"},
    {"name": "audit", "resources": ["configmaps"], "since": "yesterday"},
    {"name": "audit", "resources": ["configmaps"], "since": {"created": "x", "lineage": "y", "sequence": 0}},
    {"name": "audit", "resources": ["configmaps"], "full": "yes"},
    {"name": "audit", "resources": ["configmaps"], "namespace": "default"},
]


def part(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_answer_matches_its_schema(name: str) -> None:
    jsonschema.validate(json.loads(msgspec.json.encode(ANSWERS[name])), part(name))


@pytest.mark.parametrize("request_", GOOD, ids=str)
def test_what_the_schema_allows_is_read(request_: dict[str, Any]) -> None:
    jsonschema.validate(request_, part("request"))
    msgspec.convert(request_, SubscriptionRequest)


@pytest.mark.parametrize("request_", BAD, ids=str)
def test_what_the_schema_forbids_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(request_, part("request"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(request_, SubscriptionRequest)


@pytest.mark.parametrize("field", ["name", "identity", "since"])
def test_a_line_break_at_the_end_is_refused(field: str) -> None:
    good = {"name": "audit", "resources": ["configmaps"], "identity": "3f" * 32, "since": "30m"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**good, field: f"{good[field]}\n"}, SubscriptionRequest)
