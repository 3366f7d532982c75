"""Mutating policies and mutating webhooks on one object: policies act first, and who acts again after the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.clients.api import APPLY, MERGE, Api, configmap
from harness.clients.policies import GROUP
from harness.servers.stand_ins.admission import CONFIGMAPS, MAPS, AdmissionServer, allow, patched, register

Object = dict[str, Any]
EVERY = {**CONFIGMAPS, "operations": ["CREATE", "UPDATE"]}
NEVER, IF_NEEDED = "Never", "IfNeeded"
#: What a policy sees of the trace, also where there is none yet.
TRACE = "object.?data.?trace.orValue('')"


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    with AdmissionServer({}) as running:
        yield running


def appends(mark: str) -> Callable[[Object], Object]:
    """A webhook that appends its mark to the trace."""

    def answered(review: Object) -> Object:
        trace = review["request"]["object"]["data"].get("trace", "") + mark
        return patched(review, {"op": "add", "path": "/data/trace", "value": trace})

    return answered


def policy(api: Api, mark: str, again: str, condition: str = "true") -> None:
    """A policy that appends its mark to the trace of traced objects."""
    expression = f"Object{{data: {{'trace': string({TRACE}) + '{mark}'}}}}"
    spec = {
        "matchConstraints": {"resourceRules": [EVERY], "objectSelector": {"matchLabels": {"is": "traced"}}},
        "matchConditions": [{"name": "given", "expression": condition}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        "reinvocationPolicy": again,
    }
    api.post(f"{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": f"policy-{mark}"}, "spec": spec})
    bound = {"metadata": {"name": f"policy-{mark}"}, "spec": {"policyName": f"policy-{mark}"}}
    api.post(f"{GROUP}/mutatingadmissionpolicybindings", bound)


def webhooks(api: Api, server: AdmissionServer, name: str = "hooks", **again: str) -> None:
    """Webhooks of one configuration, each by its mark; those in upper case only look."""
    for mark in again:
        server.webhooks[f"/{mark}"] = allow if mark.isupper() else appends(mark)
    selector = {"matchLabels": {"is": "traced"}}
    hooks = [
        {**server.webhook(f"/{mark}", EVERY, objectSelector=selector), "name": f"{mark.lower()}.example.com", **policy}
        for mark, policy in ((mark, {"reinvocationPolicy": each}) for mark, each in again.items())
    ]
    register(api, server, "Mutating", *hooks, name=name)
    server.calls.clear()


def traced(name: str = "a") -> Object:
    return configmap(name, {"at": "first"}, labels={"is": "traced"})


#: Who acts again where a policy `p` and a webhook `w` both append to the trace.
BOTH = {(NEVER, NEVER): "pw", (NEVER, IF_NEEDED): "pw", (IF_NEEDED, NEVER): "pwp", (IF_NEEDED, IF_NEEDED): "pwpw"}


@pytest.mark.parametrize(("of_policy", "of_webhook"), BOTH)
@pytest.mark.parametrize("is_webhook_first", [False, True], ids=["policy made first", "webhook made first"])
def test_policies_act_before_webhooks_and_again_after_them(
    api: Api, server: AdmissionServer, of_policy: str, of_webhook: str, is_webhook_first: bool
) -> None:
    if is_webhook_first:
        webhooks(api, server, "aaa", w=of_webhook)
        policy(api, "p", of_policy)
    else:
        policy(api, "p", of_policy)
        webhooks(api, server, "zzz", w=of_webhook)
    trace = BOTH[of_policy, of_webhook]
    assert api.post(MAPS, traced()).json["data"]["trace"] == trace
    asked = [request["object"]["data"]["trace"] for request in server.requests("/w")]
    assert asked == [trace[:at] for at, mark in enumerate(trace) if mark == "w"], "each saw what those before it wrote"
    assert api.get(f"{MAPS}/a").json["data"]["trace"] == trace
    changed = api.patch(f"{MAPS}/a", {"data": {"trace": ""}}, MERGE).json
    assert changed["data"]["trace"] == trace, "an update as a create"
    applied = api.send("PATCH", f"{MAPS}/b?fieldManager=me", traced("b"), kind=APPLY, expect=201).json
    assert applied["data"]["trace"] == trace


def test_nobody_acts_again_where_the_later_ones_changed_nothing(api: Api, server: AdmissionServer) -> None:
    policy(api, "p", IF_NEEDED)
    webhooks(api, server, W=IF_NEEDED)
    assert api.post(MAPS, traced()).json["data"]["trace"] == "p"
    assert len(server.requests("/W")) == 1


def test_of_several_webhooks_those_act_again_that_ask_for_it(api: Api, server: AdmissionServer) -> None:
    policy(api, "p", IF_NEEDED)
    policy(api, "q", NEVER)
    webhooks(api, server, a=IF_NEEDED, b=NEVER)
    assert api.post(MAPS, traced()).json["data"]["trace"] == "pqabpa"


def test_what_did_not_act_in_the_first_round_does_not_act_in_the_second(api: Api, server: AdmissionServer) -> None:
    policy(api, "p", IF_NEEDED, f"{TRACE}.endsWith('w')")
    policy(api, "q", IF_NEEDED)
    webhooks(api, server, w=IF_NEEDED)
    assert api.post(MAPS, traced()).json["data"]["trace"] == "qwqw"
    api.post(MAPS, configmap("other", {"at": "first"}))
    assert "trace" not in api.get(f"{MAPS}/other").json["data"]
