"""MutatingAdmissionPolicies on the wire: what they change, in which order, and how they refuse."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.clients.api import APPLY, Api, Object, configmap, crd, define, workspace_under
from harness.servers.shard_process import ShardProcess

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def place(admin: Api) -> Iterator[Api]:
    here = admin.at(workspace_under(admin, type_="universal"))
    define(here, crd("circles", versions=[version()]))
    yield here
    here.close()


def version() -> Object:
    """A version with a schema: defaults, an atomic list, a list by keys."""
    side = {"type": "object", "properties": {"name": {"type": "string"}, "cm": {"type": "integer", "default": 1}}}
    spec = {
        "type": "object",
        "properties": {
            "colour": {"type": "string"},
            "weight": {"type": "string", "default": "light"},
            "order": {"type": "array", "items": {"type": "string"}},
            "sides": {
                "type": "array",
                "items": {**side, "required": ["name"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {}}}}
    return {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}


def circle(name: str, **spec: Any) -> Object:
    head = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}}
    return {**head, "spec": spec}


def apply(expression: str) -> Object:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> Object:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def label(key: str, value: str) -> Object:
    """A mutation that sets a label to the value of an expression."""
    return apply(f"Object{{metadata: Object.metadata{{labels: {{'{key}': {value}}}}}}}")


def rule(*resources: str, group: str = "", operations: tuple[str, ...] = ("CREATE", "UPDATE")) -> Object:
    return {"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources), "operations": list(operations)}


@contextmanager
def policy(
    api: Api,
    *mutations: Object,
    name: str = "",
    rules: list[Object] | None = None,
    binding: Object | None = None,
    **spec: Any,
) -> Iterator[str]:
    """Install a policy with a binding. It acts on ConfigMaps that carry its name as the label `for`."""
    name = name or f"p{next(_NUMBERS)}"
    selected = {"objectSelector": {"matchLabels": {"for": name}}} if rules is None else {}
    constraints = {"resourceRules": rules or [rule("configmaps")], **selected}
    made: Object = {
        "matchConstraints": constraints,
        "mutations": list(mutations),
        "reinvocationPolicy": "Never",
        **spec,
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    api.post(POLICIES, {**head, "kind": "MutatingAdmissionPolicy", "spec": {**made, **spec}})
    bound = {"policyName": name, **(binding or {})}
    api.post(BINDINGS, {**head, "kind": "MutatingAdmissionPolicyBinding", "spec": bound})
    try:
        yield name
    finally:
        api.delete(f"{BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")


def made(api: Api, name: str, data: dict[str, str] | None = None, **labels: str) -> Object:
    """Create a ConfigMap that a policy acts on; return it as it was answered."""
    body = configmap(f"c{next(_NUMBERS)}", data, labels={"for": name, **labels})
    found: Object = api.post(CONFIGMAPS, body).json
    return found


def labels_of(obj: Object) -> dict[str, str]:
    return {key: value for key, value in obj["metadata"]["labels"].items() if key != "for"}


def test_the_owner_is_stamped_on_each_object(place: Api) -> None:
    stamp = label("owner", "request.userInfo.username.lowerAscii().replace(':', '.')")
    with policy(place, stamp, rules=[rule("configmaps"), rule("circles", group="shapes.example.com")]):
        created = place.post(CONFIGMAPS, configmap("owned")).json
        owner = created["metadata"]["labels"]["owner"]
        assert owner
        stored = place.get(f"{CONFIGMAPS}/owned").json
        assert stored["metadata"]["labels"] == {"owner": owner}
        assert place.post(CIRCLES, circle("owned")).json["metadata"]["labels"] == {"owner": owner}
    assert "labels" not in place.post(CONFIGMAPS, configmap("free")).json["metadata"]
    for path in (f"{CONFIGMAPS}/owned", f"{CONFIGMAPS}/free", f"{CIRCLES}/owned"):
        place.delete(path)


def test_a_change_of_an_object_is_mutated_as_well(place: Api) -> None:
    with policy(place, label("size", "string(object.data.size())")) as name:
        found = made(place, name, {"a": "1"})
        assert labels_of(found) == {"size": "1"}
        path = f"{CONFIGMAPS}/{found['metadata']['name']}"
        assert labels_of(place.put(path, {**found, "data": {"a": "1", "b": "2"}}).json) == {"size": "2"}
        assert labels_of(place.patch(path, {"data": {"c": "3"}}).json) == {"size": "3"}


def test_a_policy_of_creations_leaves_updates_alone(place: Api) -> None:
    rules = [{**rule("circles", group="shapes.example.com", operations=("CREATE",))}]
    with policy(place, apply("Object{spec: Object.spec{colour: 'red'}}"), rules=rules):
        found = place.post(CIRCLES, circle("first")).json
        assert found["spec"]["colour"] == "red"
        changed = place.patch(f"{CIRCLES}/first", {"spec": {"colour": "blue"}}).json
        assert changed["spec"]["colour"] == "blue"
    place.delete(f"{CIRCLES}/first")


def test_defaults_are_set_after_each_mutation_and_unknown_fields_dropped(place: Api) -> None:
    first = apply("Object{spec: Object.spec{sides: [Object.spec.sides{name: 'a'}]}}")
    second = patch(
        "[JSONPatch{op: 'add', path: '/spec/colour', value: 'c' + string(object.spec.sides[0].cm)}, "
        "JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]"
    )
    with policy(place, first, second, rules=[rule("circles", group="shapes.example.com")]):
        found = place.post(CIRCLES, circle("defaulted")).json
    assert found["spec"] == {"weight": "light", "colour": "c1", "sides": [{"name": "a", "cm": 1}]}
    place.delete(f"{CIRCLES}/defaulted")


def test_no_manager_owns_what_a_policy_wrote_and_an_apply_takes_no_notice(place: Api) -> None:
    with policy(place, label("extra", "'x'")) as name:
        body = configmap("applied", {"a": "1"}, labels={"for": name})
        path = f"{CONFIGMAPS}/applied?fieldManager=one"
        first = place.send("PATCH", path, body, kind=APPLY)
        assert first.code == 201
        assert labels_of(first.json) == {"extra": "x"}
        (entry,) = first.json["metadata"]["managedFields"]
        assert entry["fieldsV1"]["f:metadata"]["f:labels"] == {"f:for": {}}
        again = place.send("PATCH", path, body, kind=APPLY)
        assert again.json["metadata"]["resourceVersion"] == first.json["metadata"]["resourceVersion"]
        assert again.json["metadata"]["managedFields"] == [entry]
        other = place.send("PATCH", f"{CONFIGMAPS}/applied?fieldManager=two", {**body, "data": {"b": "2"}}, kind=APPLY)
        assert other.code == 200, other.json


def test_a_dry_run_is_mutated_and_stores_nothing(place: Api) -> None:
    with policy(place, label("dry", "string(request.dryRun)")) as name:
        body = configmap("dry", labels={"for": name})
        assert labels_of(place.post(f"{CONFIGMAPS}?dryRun=All", body).json) == {"dry": "true"}
        place.get(f"{CONFIGMAPS}/dry", expect=404)


def test_policies_act_by_name_and_each_sees_what_the_ones_before_left(place: Api) -> None:
    with (
        policy(place, label("one", "'1'")) as name,
        policy(
            place,
            label("two", "'saw-' + object.metadata.labels.one"),
            name=f"{name}z",
            matchConstraints={"resourceRules": [rule("configmaps")], "objectSelector": {"matchLabels": {"for": name}}},
        ),
    ):
        assert labels_of(made(place, name)) == {"one": "1", "two": "saw-1"}


@pytest.mark.parametrize(("again", "seen"), [("IfNeeded", "late"), ("Never", "nothing")])
def test_a_policy_acts_again_after_a_later_change_if_it_asks_for_that(place: Api, again: str, seen: str) -> None:
    early = apply(
        "Object{metadata: Object.metadata{annotations: "
        "{'seen': string(object.metadata.labels.?late.orValue('nothing')), "
        "'times': string(int(object.metadata.?annotations.?times.orValue('0')) + 1)}}}"
    )
    with policy(place, early, reinvocationPolicy=again) as name:
        constraints = {"resourceRules": [rule("configmaps")], "objectSelector": {"matchLabels": {"for": name}}}
        with policy(place, label("late", "'late'"), name=f"{name}z", matchConstraints=constraints):
            annotations = made(place, name)["metadata"]["annotations"]
    del annotations["kcp.io/cluster"]
    assert annotations == {"seen": seen, "times": "2" if again == "IfNeeded" else "1"}


def test_an_error_denies_with_the_reason_invalid(place: Api) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'a': object.data.missing}}}"
    with policy(place, apply(expression)) as name:
        answer = place.post(CONFIGMAPS, configmap("refused", {"a": "1"}, labels={"for": name}), expect=403)
        text = f"policy '{name}' with binding '{name}' denied request: "
        text += f"expression '{expression}' resulted in error: no such key: missing"
        status = answer.json
        assert (status["message"], status["reason"], status["code"]) == (text, "Invalid", 403)
        assert status["details"] == {"name": "refused", "kind": "configmaps", "causes": [{"message": text}]}
    place.get(f"{CONFIGMAPS}/refused", expect=404)


@pytest.mark.parametrize(
    ("mutation", "error"),
    [
        (
            apply("Object{spec: Object.spec{order: ['a']}}"),
            "error applying patch: invalid ApplyConfiguration: "
            "may not mutate atomic arrays, maps or structs: .spec.order",
        ),
        (
            apply("Object{spec: Object.spec{other: 1}}"),
            "error applying patch: failed to convert patch object to typed object: "
            ".spec.other: field not declared in schema",
        ),
        (
            apply("Object{spec: Object.other{}}"),
            'type mismatch: unexpected type name "Object.other", expected "Object.spec", '
            "which matches field name path from root Object type",
        ),
        (
            patch("[JSONPatch{op: 'add', path: '/spec/a/b', value: 1}]"),
            'JSON Patch: add operation does not apply: doc is missing path: "/spec/a/b": missing value',
        ),
    ],
)
def test_a_mutation_that_does_not_fit_denies_and_under_ignore_changes_nothing(
    place: Api, mutation: Object, error: str
) -> None:
    rules = [rule("circles", group="shapes.example.com")]
    with policy(place, mutation, rules=rules) as name:
        answer = place.post(CIRCLES, circle("unfit"), expect=403)
        assert answer.json["message"] == f"policy '{name}' with binding '{name}' denied request: {error}"
    with policy(
        place, mutation, apply("Object{spec: Object.spec{colour: 'red'}}"), rules=rules, failurePolicy="Ignore"
    ):
        assert place.post(CIRCLES, circle("unfit")).json["spec"] == {"weight": "light", "colour": "red"}
    place.delete(f"{CIRCLES}/unfit")


def test_the_errors_of_all_policies_are_told(place: Api) -> None:
    failing = label("a", "object.data.missing")
    with policy(place, failing, failing) as name:
        answer = place.post(CONFIGMAPS, configmap("refused", labels={"for": name}), expect=403)
        assert len(answer.json["details"]["causes"]) == 2


def test_a_patch_that_removes_the_kind_is_an_internal_error(place: Api) -> None:
    with policy(place, patch("[JSONPatch{op: 'remove', path: '/kind'}]"), failurePolicy="Ignore") as name:
        place.post(CONFIGMAPS, configmap("kindless", labels={"for": name}), expect=500)


def test_a_policy_writes_no_more_than_a_client(place: Api) -> None:
    mutation = patch(
        "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}, "
        "JSONPatch{op: 'add', path: '/metadata/uid', value: 'x'}, "
        "JSONPatch{op: 'add', path: '/metadata/generation', value: 7}]"
    )
    with policy(place, mutation) as name:
        metadata = place.post(CONFIGMAPS, configmap("named", labels={"for": name})).json["metadata"]
    assert metadata["name"] == "named"
    assert metadata["uid"] != "x"
    assert "generation" not in metadata


def test_conditions_and_variables_decide(place: Api) -> None:
    with policy(
        place,
        label("kept", "variables.first"),
        variables=[{"name": "first", "expression": "object.data.?a.orValue('none')"}],
        matchConditions=[{"name": "not-b", "expression": "!has(object.data.b)"}],
    ) as name:
        assert labels_of(made(place, name, {"a": "1"})) == {"kept": "1"}
        assert labels_of(made(place, name, {"b": "1"})) == {}


def test_each_parameter_of_a_binding_mutates(place: Api) -> None:
    for each in ("red", "blue"):
        place.post(CONFIGMAPS, configmap(f"param-{each}", {"colour": each}, labels={"param": "yes"}))
    reference = {"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Deny"}
    mutation = apply("Object{metadata: Object.metadata{labels: {params.data.colour: 'yes'}}}")
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    with policy(place, mutation, paramKind=kind, binding={"paramRef": reference}) as name:
        assert labels_of(made(place, name)) == {"red": "yes", "blue": "yes"}
        for each in ("red", "blue"):
            place.delete(f"{CONFIGMAPS}/param-{each}")
        answer = place.post(CONFIGMAPS, configmap("paramless", labels={"for": name}), expect=403)
        wanted = "no params found for policy binding with `Deny` parameterNotFoundAction"
        text = f"policy '{name}' with binding '{name}' denied request: failed to configure binding: {wanted}"
        assert (answer.json["message"], answer.json["reason"]) == (text, "Forbidden")


def test_a_generated_name_is_kept(place: Api) -> None:
    with policy(place, label("prefix", "object.metadata.generateName + 'x'")) as name:
        body = configmap("", labels={"for": name}, generateName="made-")
        del body["metadata"]["name"]
        found = place.post(CONFIGMAPS, body).json
    assert found["metadata"]["name"].startswith("made-")
    assert labels_of(found) == {"prefix": "made-x"}


def test_an_expression_that_does_not_compile_is_refused_when_it_is_written(place: Api) -> None:
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "broken"}}
    spec = {
        "matchConstraints": {"resourceRules": [rule("configmaps")]},
        "mutations": [apply("Object{spec:")],
        "reinvocationPolicy": "Never",
    }
    answer = place.post(POLICIES, {**head, "kind": "MutatingAdmissionPolicy", "spec": spec}, expect=422)
    (cause,) = answer.json["details"]["causes"]
    assert cause["field"] == "spec.mutations[0].applyConfiguration.expression"


def test_what_a_policy_wrote_is_validated(place: Api) -> None:
    mutation = patch("[JSONPatch{op: 'add', path: '/spec/colour', value: 7}]")
    with policy(place, mutation, rules=[rule("circles", group="shapes.example.com")]):
        answer = place.post(CIRCLES, circle("invalid"), expect=422)
        assert answer.json["details"]["causes"][0]["field"] == "spec.colour"


def test_mutations_are_counted(place: Api, shard: ShardProcess) -> None:
    with policy(place, label("a", "'1'")) as name:
        made(place, name)
    labels = f'error_type="no_error",policy="{name}",policy_binding="{name}"'
    text = Api(shard, "", "shard-admin").get("/metrics").body.decode()
    assert f"apiserver_mutating_admission_policy_check_total{{{labels}}} 1.0" in text
    assert f"apiserver_mutating_admission_policy_check_duration_seconds_count{{{labels}}} 1.0" in text
