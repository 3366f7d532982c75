"""What admission sees of objects without a name, in namespaces that take none, and of the options of deletions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import MERGE, Api, configmap, eventually
from harness.clients.policies import GROUP as ADMISSION
from harness.clients.policies import Policies
from harness.servers.stand_ins.admission import CONFIGMAPS, MAPS, AdmissionServer, allow, patched, register

Object = dict[str, Any]
ACCOUNTS = "/api/v1/namespaces/gone/serviceaccounts"
DELETIONS = {**CONFIGMAPS, "operations": ["DELETE"]}
EVERYTHING = {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
#: What a mutating policy sees of a new ConfigMap.
SEEN = (
    "Object{data: {'request': request.?name.orValue('none'), 'object': string(object.metadata.?name.orValue('none')), "
    "'stamps': string(has(object.metadata.uid) || has(object.metadata.creationTimestamp))}}"
)


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    with AdmissionServer({"/seen": allow, "/other": allow}) as running:
        yield running


@pytest.fixture
def seeing(api: Api) -> Api:
    """A workspace whose mutating policy writes into new ConfigMaps what it sees of them."""
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": SEEN}}
    spec = {"matchConstraints": {"resourceRules": rules}, "mutations": [mutation], "reinvocationPolicy": "Never"}
    api.post(f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "seen"}, "spec": spec})
    api.post(
        f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": {"name": "seen"}, "spec": {"policyName": "seen"}}
    )
    return api


def generated(prefix: str = "made-") -> Object:
    return {"metadata": {"generateName": prefix}}


@pytest.mark.parametrize("needs_answers", [False, True], ids=["planned once", "planned again"])
def test_mutating_policies_see_no_generated_name_and_no_stamps(
    seeing: Api, server: AdmissionServer, needs_answers: bool
) -> None:
    if needs_answers:
        register(seeing, server, "Validating", server.webhook("/other"))
    unnamed = {"request": "none", "object": "none", "stamps": "false"}
    for query in ("", "?dryRun=All"):
        made = seeing.post(MAPS + query, generated()).json
        assert made["data"] == unnamed
        assert made["metadata"]["name"].startswith("made-")
        assert made["metadata"]["uid"]
    named = {"request": "given", "object": "given", "stamps": "false"}
    both = {"metadata": {"name": "given", "generateName": "made-"}}
    assert seeing.post(MAPS, both).json["data"] == named


def test_mutating_webhooks_see_what_mutating_policies_see(api: Api, server: AdmissionServer) -> None:
    condition = {"name": "unnamed", "expression": "!has(request.name) && !has(object.metadata.name)"}
    register(api, server, "Mutating", server.webhook("/seen", matchConditions=[condition]), server.webhook("/other"))
    server.calls.clear()
    made = api.post(MAPS, generated()).json
    api.post(MAPS, configmap("given"))
    (first,), both = server.requests("/seen"), server.requests("/other")
    assert first["object"] == both[0]["object"]
    assert "name" not in first
    metadata = first["object"]["metadata"]
    assert (metadata["generateName"], metadata["namespace"]) == ("made-", "default")
    assert not {"name", "uid", "creationTimestamp", "generation"} & set(metadata)
    assert made["metadata"]["uid"]
    assert [each.get("name") for each in both] == [None, "given"]
    assert "uid" not in both[1]["object"]["metadata"]


def test_a_refusal_of_an_unnamed_object_says_its_prefix(api: Api, server: AdmissionServer) -> None:
    condition = {"name": "broken", "expression": "object.data.nothing == 'x'"}
    strict = {"matchLabels": {"strict": "yes"}}
    webhook = server.webhook("/seen", matchConditions=[condition], objectSelector=strict)
    register(api, server, "Mutating", webhook)
    refused = api.post(MAPS, {"metadata": {"generateName": "made-", "labels": {"strict": "yes"}}}, expect=403)
    assert refused.message.startswith('configmaps "made-" is forbidden: ')


def test_webhooks_are_not_asked_about_objects_in_a_namespace_that_takes_none(api: Api, server: AdmissionServer) -> None:
    api.post("/api/v1/namespaces", {"metadata": {"name": "gone"}})
    api.post(ACCOUNTS, {"metadata": {"name": "robot", "finalizers": ["example.com/hold"]}})
    register(api, server, "Mutating", server.webhook("/seen", EVERYTHING))
    server.calls.clear()
    missing = api.post(MAPS.replace("default", "none"), configmap("a"), expect=404)
    assert missing.message == 'namespaces "none" not found'
    api.post(f"{ACCOUNTS}/robot/token", {"spec": {}})
    api.delete("/api/v1/namespaces/gone")
    server.calls.clear()
    text = "is forbidden: unable to create new content in namespace gone because it is being terminated"
    maps = MAPS.replace("default", "gone")
    refusals = [
        (maps, configmap("a"), f'configmaps "a" {text}'),
        (maps, generated(), f'configmaps "made-" {text}'),
        (f"{ACCOUNTS}/robot/token", {"spec": {}}, f'serviceaccounts "robot" {text}'),
    ]
    for path, body, message in refusals:
        refused = api.post(path, body, expect=403)
        assert refused.message == message
        assert refused.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert server.requests("/seen") == []
    api.patch(f"{ACCOUNTS}/robot", {"metadata": {"finalizers": None}}, MERGE)


def test_a_dry_run_of_a_token_is_one_to_webhooks(api: Api, server: AdmissionServer) -> None:
    tokens = {**EVERYTHING, "resources": ["serviceaccounts/token"]}
    register(api, server, "Validating", server.webhook("/seen", tokens, sideEffects="NoneOnDryRun"))
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    eventually(lambda: api.get(path.removesuffix("/token"), expect=0).code == 200, "the account")
    for query in ("", "?dryRun=All"):
        api.post(path + query, {"spec": {}})
    assert [each["dryRun"] for each in server.requests("/seen")] == [False, True]


#: Deletions of `a`: the query, the body, and the options that admission sees beside apiVersion and kind.
DELETED: dict[str, tuple[str, Object | None, Object]] = {
    "nothing": ("", None, {}),
    "query": (
        "gracePeriodSeconds=0&propagationPolicy=Foreground&dryRun=All",
        None,
        {"gracePeriodSeconds": 0, "propagationPolicy": "Foreground", "dryRun": ["All"]},
    ),
    "orphans": ("orphanDependents=true", None, {"orphanDependents": True}),
    "body": (
        "",
        {"gracePeriodSeconds": 5, "propagationPolicy": "Background", "preconditions": {"resourceVersion": "$"}},
        {"gracePeriodSeconds": 5, "propagationPolicy": "Background", "preconditions": {"resourceVersion": "$"}},
    ),
    "body before query": ("propagationPolicy=Orphan", {"gracePeriodSeconds": 3}, {"gracePeriodSeconds": 3}),
    "uid": ("uid=$uid", None, {"preconditions": {"uid": "$uid"}}),
}


def filled(value: Any, metadata: Object) -> Any:
    """A value with the resourceVersion for `$` and the uid for `$uid`."""
    if isinstance(value, dict):
        return {key: filled(each, metadata) for key, each in value.items()}
    if isinstance(value, str):
        return value.replace("$uid", metadata["uid"]).replace("$", metadata["resourceVersion"])
    return value


@pytest.mark.parametrize("case", DELETED)
@pytest.mark.parametrize("path", [f"{MAPS}/a?", f"{MAPS}?labelSelector=in=one&"], ids=["one", "collection"])
def test_the_options_of_a_deletion_are_those_of_its_body_or_query(
    api: Api, server: AdmissionServer, case: str, path: str
) -> None:
    register(api, server, "Validating", server.webhook("/seen", DELETIONS))
    query, body, expected = DELETED[case]
    metadata = api.post(MAPS, configmap("a", labels={"in": "one"})).json["metadata"]
    api.send("DELETE", filled(path + query, metadata), filled(body, metadata), expect=200)
    (request,) = server.requests("/seen")
    head = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    assert request["options"] == {**head, **filled(expected, metadata)}


def test_policies_see_the_options_of_a_deletion(api: Api) -> None:
    Policies(api).deny("patient", "request.options.?gracePeriodSeconds.orValue(1) != 5", rules=[DELETIONS])
    api.post(MAPS, configmap("a", labels={"in": "one"}))
    for path in (f"{MAPS}/a", f"{MAPS}?labelSelector=in=one"):
        api.send("DELETE", path, {"gracePeriodSeconds": 5}, expect=422)
        api.send("DELETE", f"{path}{'&' if '?' in path else '?'}gracePeriodSeconds=5", expect=422)
    api.send("DELETE", f"{MAPS}/a", {"gracePeriodSeconds": 4}, expect=200)


def test_a_uid_in_the_query_of_a_deletion_is_a_precondition(api: Api) -> None:
    api.post(MAPS, configmap("a"))
    refused = api.delete(f"{MAPS}/a?uid=other", expect=409)
    assert "the UID in the precondition (other) does not match" in refused.message


def test_policies_are_counted_once_although_webhooks_made_plans_again(api: Api, server: AdmissionServer) -> None:
    def count(kind: str, name: str) -> float:
        lead = f"apiserver_{kind}_admission_policy_check_total{{"
        text = api.at("").get("/metrics").body.decode()
        lines = (line for line in text.splitlines() if line.startswith(lead) and f'policy="{name}"' in line)
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    name = "counted-" + api.cluster.rpartition("-")[2]
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'a': '1'}}"}}
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    register(api, server, "Mutating", server.webhook("/seen"), server.webhook("/other"), name="mutating")
    server.webhooks["/other"] = lambda review: patched(review, {"op": "add", "path": "/data/b", "value": "2"})
    register(api, server, "Validating", server.webhook("/seen"), name="validating")
    Policies(api).add(
        {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": rules},
                "validations": [{"expression": "object.data.b == '1'"}],
            },
        },
        {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Warn"]}},
    )
    spec = {"matchConstraints": {"resourceRules": rules}, "mutations": [mutation], "reinvocationPolicy": "Never"}
    api.post(f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    api.post(f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": {"policyName": name}})
    for index in range(3):
        made = api.post(MAPS, configmap(f"counted-{index}"))
        assert len(made.warnings) == 1
    api.post(MAPS, {**configmap("Not valid")}, expect=422)
    assert (count("mutating", name), count("validating", name)) == (4, 3)
