"""The contract of events is never broken: what was released stays, under its name and in its form.

`released/` holds each version as it was given to readers, and is not changed any more.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.machinery.process.resources import schema_path
from harness.models.schema_evolution import breaks, refusals

RELEASED = Path(__file__).parent / "released"
GIVEN = sorted(path for path in RELEASED.rglob("*") if path.is_file())


def read(path: Path) -> dict[str, Any]:
    text = path.read_text()
    found: dict[str, Any] = json.loads(text) if path.suffix == ".json" else yaml.load(text, yaml.CSafeLoader)
    return found


def today(name: str) -> dict[str, Any]:
    return read(next(schema_path("events").rglob(name)))


def headers() -> dict[str, Any]:
    return read(RELEASED / "v1" / "headers.schema.json")


def channels() -> dict[str, Any]:
    return read(RELEASED / "v1" / "asyncapi.yaml")


def follow() -> dict[str, Any]:
    return read(RELEASED / "v1.1" / "follow.schema.json")


@pytest.mark.parametrize("path", GIVEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_todays_contract_breaks_no_reader_of_a_released_one(path: Path) -> None:
    assert breaks(read(path), today(path.name)) == []


def test_every_file_of_the_contract_was_released() -> None:
    files = {path.name for path in schema_path("events").rglob("*") if path.is_file()}
    assert files == {path.name for path in GIVEN}


def without_a_header(new: dict[str, Any]) -> None:
    del new["properties"]["Atoll-Previous"]


def with_a_header_of_another_name(new: dict[str, Any]) -> None:
    new["properties"]["Atoll-Time"] = new["properties"].pop("ce-time")


def with_a_header_that_may_be_absent(new: dict[str, Any]) -> None:
    new["required"].remove("Atoll-Epoch")


def with_another_type(new: dict[str, Any]) -> None:
    new["properties"]["Atoll-Lineage"]["type"] = "integer"


def with_another_form(new: dict[str, Any]) -> None:
    new["$defs"]["number"]["pattern"] = "^0x[0-9a-f]+$"


def with_another_constant(new: dict[str, Any]) -> None:
    new["properties"]["ce-specversion"]["const"] = "2.0"


def with_a_value_less(new: dict[str, Any]) -> None:
    new["properties"]["Atoll-Operation"]["enum"].remove("MOVED")


def without_a_condition(new: dict[str, Any]) -> None:
    del new["allOf"][0]["else"]


def without_a_dependency(new: dict[str, Any]) -> None:
    new["dependentRequired"]["Atoll-Signature"].remove("Atoll-Key")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_header, "/properties/Atoll-Previous is gone"),
        (with_a_header_of_another_name, "/properties/ce-time is gone"),
        (with_a_header_that_may_be_absent, "/required lost Atoll-Epoch"),
        (with_another_type, "/properties/Atoll-Lineage/type changed"),
        (with_another_form, "/properties/Atoll-Epoch/pattern changed"),
        (with_another_constant, "/properties/ce-specversion/const changed"),
        (with_a_value_less, "/properties/Atoll-Operation/enum lost MOVED"),
        (without_a_condition, "/allOf changed"),
        (without_a_dependency, "/dependentRequired/Atoll-Signature changed"),
    ],
)
def test_a_header_that_breaks_readers_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    new = headers()
    change(new)
    assert said in breaks(headers(), new)


def with_another_address(new: dict[str, Any]) -> None:
    new["channels"]["changes"]["address"] = "atoll.v2.{shard}.{identity}.{group}.{resource}.{cluster}"


def without_a_channel(new: dict[str, Any]) -> None:
    del new["channels"]["stateControl"]


def without_a_message(new: dict[str, Any]) -> None:
    del new["components"]["messages"]["control"]


def with_another_payload(new: dict[str, Any]) -> None:
    new["components"]["messages"]["change"]["payload"]["schema"]["type"] = "array"


def with_another_content_type(new: dict[str, Any]) -> None:
    new["components"]["messages"]["change"]["contentType"] = "application/cbor"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_another_address, "/channels/changes/address changed"),
        (without_a_channel, "/channels/stateControl is gone"),
        (without_a_message, "/components/messages/control is gone"),
        (with_another_payload, "/components/messages/change/payload/schema/type changed"),
        (with_another_content_type, "/components/messages/change/contentType changed"),
    ],
)
def test_a_channel_that_breaks_readers_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    new = channels()
    change(new)
    assert breaks(channels(), new) == [said]


def without_the_id(new: dict[str, Any]) -> None:
    new["required"].remove("id")


def without_bookmarks(new: dict[str, Any]) -> None:
    new["properties"]["atolloperation"]["enum"].remove("BOOKMARK")


def with_a_body_whose_type_is_not_said(new: dict[str, Any]) -> None:
    del new["dependentRequired"]["data"]


def with_numbers_for_revisions(new: dict[str, Any]) -> None:
    new["properties"]["atollrevision"]["type"] = "integer"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_the_id, "/required lost id"),
        (without_bookmarks, "/properties/atolloperation/enum lost BOOKMARK"),
        (with_a_body_whose_type_is_not_said, "/dependentRequired/data is gone"),
        (with_numbers_for_revisions, "/properties/atollrevision/type changed"),
    ],
)
def test_a_document_that_breaks_readers_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    new = follow()
    change(new)
    assert breaks(follow(), new) == [said]


def forms() -> dict[str, Any]:
    return read(RELEASED / "v1.1" / "subscriptions.schema.json")


def without_the_consumer(new: dict[str, Any]) -> None:
    del new["subscription"]["properties"]["consumer"]


def with_streams_of_another_name(new: dict[str, Any]) -> None:
    new["subscription"]["properties"]["parts"] = new["subscription"]["properties"].pop("streams")


def with_a_state_less(new: dict[str, Any]) -> None:
    new["state"]["enum"].remove("Gone")


def with_text_for_a_number(new: dict[str, Any]) -> None:
    new["subscription"]["properties"]["maxAckPending"]["type"] = "string"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_the_consumer, "/oneOf/1/properties/consumer is gone"),
        (with_streams_of_another_name, "/oneOf/1/properties/streams is gone"),
        (with_a_state_less, "/oneOf/1/properties/state/enum lost Gone"),
        (with_text_for_a_number, "/oneOf/1/properties/maxAckPending/type changed"),
    ],
)
def test_an_answer_that_breaks_readers_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    new = forms()
    change(new["$defs"])
    assert said in breaks(forms(), new)


def test_an_answer_may_get_a_field() -> None:
    new = forms()
    new["$defs"]["subscription"]["properties"]["createdBy"] = {"type": "string"}
    assert breaks(forms(), new) == []


def request(document: dict[str, Any]) -> dict[str, Any]:
    return {**document["$defs"]["request"], "$defs": document["$defs"]}


def test_a_request_of_a_released_version_is_taken() -> None:
    assert refusals(request(forms()), request(today("subscriptions.schema.json"))) == []


def with_a_required_field(new: dict[str, Any]) -> None:
    new["required"].append("since")


def with_fewer_resources(new: dict[str, Any]) -> None:
    new["properties"]["resources"]["maxItems"] = 8


def with_a_bound_more(new: dict[str, Any]) -> None:
    new["properties"]["resources"]["uniqueItems"] = True


def without_full_events(new: dict[str, Any]) -> None:
    del new["properties"]["full"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_a_required_field, "/required gained since"),
        (with_fewer_resources, "/properties/resources/maxItems changed"),
        (with_a_bound_more, "/properties/resources/uniqueItems is new"),
        (without_full_events, "/properties/full is gone"),
    ],
)
def test_a_form_that_refuses_a_released_request_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    new = forms()
    change(new["$defs"]["request"])
    assert refusals(request(forms()), request(new)) == [said]


def test_a_request_may_get_a_field_that_may_be_absent() -> None:
    new = forms()
    new["$defs"]["request"]["properties"]["label"] = {"type": "string"}
    assert refusals(request(forms()), request(new)) == []


def test_a_thin_event_that_breaks_readers_is_refused() -> None:
    released = read(RELEASED / "v1.1" / "asyncapi.yaml")
    new = copy.deepcopy(released)
    new["components"]["messages"]["thinChange"]["payload"] = new["components"]["messages"]["change"].pop("payload")
    assert breaks(released, new) == ["/components/messages/change/payload is gone"]
    new = copy.deepcopy(released)
    new["components"]["messages"]["thinChange"]["headers"]["schema"]["allOf"][1]["required"] = []
    assert breaks(released, new) == ["/components/messages/thinChange/headers/schema/allOf changed"]


def test_what_is_added_or_explained_breaks_nobody() -> None:
    new = copy.deepcopy(headers())
    new["properties"]["Atoll-Tenant"] = {"type": "string"}
    new["properties"]["Atoll-Operation"]["enum"].append("PAUSED")
    new["properties"]["ce-time"]["description"] = "When it was."
    new["required"].append("Atoll-Key")
    assert breaks(headers(), new) == []
    document = channels()
    document["channels"]["fills"] = document["channels"]["state"]
    document["info"]["version"] = "1.1.0"
    assert breaks(channels(), document) == []


def test_moving_a_definition_breaks_nobody() -> None:
    new = headers()
    new["properties"]["Atoll-Epoch"] = dict(new["$defs"]["number"])
    assert breaks(headers(), new) == []
