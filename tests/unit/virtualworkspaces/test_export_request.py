"""Whether the exports that own a claimed kind permit a request for its objects, and which objects a claim shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.kcp.apis.permission_claims import Claim, ClaimKey, Selector
from atoll.machinery.meta.selectors import LabelSelector, parse_label_selector
from atoll.machinery.meta.user import User
from atoll.virtualworkspaces.export_catalog import ClaimedResource, ExportKey
from atoll.virtualworkspaces.export_request import ExportRequest, _narrowed

GROUP, PLURAL = "shapes.example.com", "circles"


def is_permitted(*answers: bool, identity: str = "hash", replicas: bool = False) -> bool:
    """Return whether a list of claimed objects is permitted when their owners give these answers."""
    owners = tuple(ExportKey(f"owner-{number}", "shapes") for number in range(len(answers)))
    permits = {owner.cluster: answer for owner, answer in zip(owners, answers, strict=True)}
    authorizer = SimpleNamespace(permits=lambda view, attributes, cluster, name: permits[cluster])
    info = parse("GET", f"/apis/{GROUP}/v1/{PLURAL}".encode())
    request = SimpleNamespace(info=info, user=User("provider"), cluster="consumer")
    made = ExportRequest(
        cast(Any, SimpleNamespace(authorizer=authorizer)), cast(Any, request), ExportKey("provider", "tools"), None
    )
    claimed = ClaimedResource(ClaimKey(GROUP, PLURAL, identity), None, None, owners)
    view = SimpleNamespace(replicas=SimpleNamespace(empty=not replicas))
    return made._is_permitted(cast(Any, view), cast(Any, SimpleNamespace(claimed={(GROUP, PLURAL): claimed})), "list")


@pytest.mark.parametrize("answers", [(True, False), (False, True), (False,), (False, False)])
def test_each_export_that_owns_a_claimed_kind_can_forbid(answers: tuple[bool, ...]) -> None:
    assert not is_permitted(*answers)


def test_what_all_owners_permit_is_permitted() -> None:
    assert is_permitted(True, True)


def test_no_owner_permits_only_where_none_can_be_on_its_way() -> None:
    assert is_permitted(replicas=False)
    assert not is_permitted(replicas=True)


def test_a_kind_without_an_export_has_no_owner_to_ask() -> None:
    assert is_permitted(identity="", replicas=True)


def test_a_claim_with_one_selector_shows_what_it_selects_and_one_with_several_what_carries_its_label() -> None:
    label = parse_label_selector("claimed=yes")
    one, other = (Selector(parse_label_selector(text)) for text in ("a=b", "c=d"))

    def narrowed(*selectors: Selector) -> LabelSelector:
        return _narrowed(label, Claim(ClaimKey("", "events"), frozenset({"*"}), selectors))

    assert narrowed(one) == parse_label_selector("a=b,claimed=yes")
    assert narrowed(one, other) == narrowed(other, one) == label


@pytest.mark.parametrize("changed", ["", "type", "mark", "verbs", "gone", "new"])
def test_a_request_over_all_clusters_is_served_as_the_kind_it_was_planned_for(changed: str) -> None:
    planned = {"type": "circles", "mark": "hash", "verbs": frozenset({"get", "list"})}
    now = {**planned, changed: "other"} if changed in planned else planned
    served = None if changed == "gone" else SimpleNamespace(**now)
    before = None if changed == "new" else SimpleNamespace(**planned)
    request = SimpleNamespace(info=parse("GET", f"/apis/{GROUP}/v1/{PLURAL}".encode()), user=User("provider"))
    made = ExportRequest(cast(Any, None), cast(Any, request), ExportKey("provider", "tools"), cast(Any, before))
    catalog = SimpleNamespace(find=lambda *_: served)
    assert made._is_as_before(cast(Any, SimpleNamespace(catalog=catalog))) == (not changed)
