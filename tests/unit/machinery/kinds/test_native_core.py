"""Namespaces, ConfigMaps, Secrets, ServiceAccounts and ResourceQuotas: create, validation, update, table columns."""

import base64

import pytest

from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.core.namespaces import NAMESPACES
from atoll.machinery.kinds.core.resourcequotas import RESOURCEQUOTAS
from atoll.machinery.kinds.core.secrets import SECRETS
from atoll.machinery.kinds.core.serviceaccounts import SERVICEACCOUNTS
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time
from harness.models.native_write import NOW, accepted, create, refused, sample, update

MIB = 1024 * 1024


def b64(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def cells(kind: Kind, obj: Object) -> list[object]:
    now_s = parse_time(NOW)
    assert kind.cells is not None
    assert now_s is not None
    return kind.cells(obj, now_s + 63)


# --- namespaces ------------------------------------------------------------------------------------------


def test_a_new_namespace_is_active_held_and_labelled() -> None:
    stored = accepted(NAMESPACES, sample(NAMESPACES))
    assert stored["status"] == {"phase": "Active"}
    assert stored["spec"] == {"finalizers": ["kubernetes"]}
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert NAMESPACES.held(stored)
    assert cells(NAMESPACES, stored) == ["x", "Active", "63s"]
    assert NAMESPACES.field_labels["status.phase"](stored) == "Active"


def test_an_update_of_a_namespace_keeps_its_finalizers_and_its_label() -> None:
    old = accepted(NAMESPACES, sample(NAMESPACES))
    new = {**old, "spec": {"finalizers": ["mine.io/x"]}, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    stored, errors = update(NAMESPACES, new, old)
    assert errors == []
    assert stored["spec"] == {"finalizers": ["kubernetes"]}
    assert stored["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": "x"}


def test_a_namespace_without_finalizers_gets_none_by_an_update() -> None:
    old = accepted(NAMESPACES, sample(NAMESPACES))
    old["spec"] = {}
    stored, _ = update(NAMESPACES, {**old, "spec": {"finalizers": ["kubernetes"]}}, old)
    assert stored["spec"] == {}
    assert not NAMESPACES.held(stored)


def test_the_finalizers_of_a_namespace_carry_a_domain() -> None:
    assert refused(NAMESPACES, sample(NAMESPACES, spec={"finalizers": ["mine"]})) == [
        'spec.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified'
    ]


def test_a_namespace_whose_deletion_begins_is_terminating() -> None:
    obj = accepted(NAMESPACES, sample(NAMESPACES))
    NAMESPACES.begin_deletion(obj)
    assert obj["status"]["phase"] == "Terminating"


def test_the_phase_of_a_namespace_follows_its_deletion() -> None:
    old = accepted(NAMESPACES, sample(NAMESPACES))
    _, errors = update(NAMESPACES, {**old, "status": {"phase": "Terminating"}}, old)
    assert errors == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]
    deleted = {**old, "metadata": {**old["metadata"], "deletionTimestamp": NOW}}
    _, errors = update(NAMESPACES, deleted, deleted)
    assert errors == [
        "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
    ]


# --- configmaps ------------------------------------------------------------------------------------------


def test_a_configmap_holds_texts_and_bytes() -> None:
    stored = accepted(CONFIGMAPS, sample(CONFIGMAPS, data={"a": "b"}, binaryData={"c": "YWJ\nj"}))
    assert stored["binaryData"] == {"c": "YWJj"}
    assert cells(CONFIGMAPS, stored) == ["x", 2, "63s"]


def test_fields_that_no_configmap_has_are_dropped_and_nulls_are_absent() -> None:
    stored = accepted(CONFIGMAPS, sample(CONFIGMAPS, data=None, foo=1, immutable=None))
    assert set(stored) == {"apiVersion", "kind", "metadata"}


def test_the_same_key_is_not_text_and_bytes_at_once() -> None:
    assert refused(CONFIGMAPS, sample(CONFIGMAPS, data={"a": "b"}, binaryData={"a": "YQ=="})) == [
        'data[a]: Invalid value: "a": duplicate of key present in binaryData',
        'binaryData[a]: Invalid value: "a": duplicate of key present in data',
    ]


@pytest.mark.parametrize("key", ["", "a/b", "..", "x" * 254])
def test_a_key_is_a_plain_name(key: str) -> None:
    for field, kind in (("data", CONFIGMAPS), ("binaryData", CONFIGMAPS), ("data", SECRETS)):
        errors = refused(kind, sample(kind, **{field: {key: b64("v")}}))
        assert all(error.startswith(f'{field}[{key}]: Invalid value: "{key}": ') for error in errors)


def test_a_configmap_has_one_mebibyte_at_most() -> None:
    half = "x" * (MIB // 2)
    assert create(CONFIGMAPS, sample(CONFIGMAPS, data={"a": half}, binaryData={"b": b64(half)}))[1] == []
    assert refused(CONFIGMAPS, sample(CONFIGMAPS, data={"a": half, "c": "x"}, binaryData={"b": b64(half)})) == [
        "[]: Too long: may not be more than 1048576 bytes"
    ]
    assert refused(CONFIGMAPS, sample(CONFIGMAPS, data={"a": "ä" * (MIB // 2) + "x"}))


def test_an_immutable_configmap_stays_as_it_is() -> None:
    old = accepted(CONFIGMAPS, sample(CONFIGMAPS, data={"a": "b"}, immutable=True))
    text = "Forbidden: field is immutable when `immutable` is set"
    assert update(CONFIGMAPS, {**old, "data": {}}, old)[1] == [f"data: {text}"]
    assert update(CONFIGMAPS, {**old, "binaryData": {"z": "YQ=="}}, old)[1] == [f"binaryData: {text}"]
    assert update(CONFIGMAPS, {**old, "immutable": False}, old)[1] == [f"immutable: {text}"]
    relabelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert update(CONFIGMAPS, relabelled, old)[1] == []


def test_a_mutable_configmap_may_become_immutable() -> None:
    old = accepted(CONFIGMAPS, sample(CONFIGMAPS, data={"a": "b"}))
    assert update(CONFIGMAPS, {**old, "data": {"c": "d"}, "immutable": True}, old)[1] == []


# --- secrets ---------------------------------------------------------------------------------------------


def test_texts_of_a_secret_are_folded_into_its_data() -> None:
    stored = accepted(SECRETS, sample(SECRETS, data={"a": b64("1"), "b": b64("2")}, stringData={"b": "ü", "c": ""}))
    assert stored["data"] == {"a": b64("1"), "b": b64("ü"), "c": ""}
    assert "stringData" not in stored
    assert stored["type"] == "Opaque"
    assert cells(SECRETS, stored) == ["x", "Opaque", 3, "63s"]
    assert SECRETS.field_labels["type"](stored) == "Opaque"


def test_an_update_folds_too_and_keeps_the_type() -> None:
    old = accepted(SECRETS, sample(SECRETS, type="example.com/t", data={"a": ""}))
    new = {key: value for key, value in old.items() if key != "type"}
    stored, errors = update(SECRETS, {**new, "stringData": {"a": "x"}}, old)
    assert errors == []
    assert stored["type"] == "example.com/t"
    assert stored["data"] == {"a": b64("x")}


def test_the_type_of_a_secret_never_changes() -> None:
    old = accepted(SECRETS, sample(SECRETS))
    _, errors = update(SECRETS, {**old, "type": "example.com/t"}, old)
    assert errors == ['type: Invalid value: "example.com/t": field is immutable']


TLS = "kubernetes.io/tls"


@pytest.mark.parametrize(
    ("type_", "data", "errors"),
    [
        (TLS, {"tls.crt": ""}, ["data[tls.key]: Required value"]),
        (TLS, {}, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        (TLS, {"tls.crt": "", "tls.key": ""}, []),
        ("kubernetes.io/basic-auth", {}, ["data[username]: Required value", "data[password]: Required value"]),
        ("kubernetes.io/basic-auth", {"password": ""}, []),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": "YQ=="}, []),
        ("kubernetes.io/dockercfg", {}, ["data[.dockercfg]: Required value"]),
        ("kubernetes.io/dockerconfigjson", {}, ["data[.dockerconfigjson]: Required value"]),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": b64('{"auths":{}}')}, []),
        (
            "kubernetes.io/dockerconfigjson",
            {".dockerconfigjson": b64("sekret")},
            ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": the value is not a JSON object'],
        ),
        (
            "kubernetes.io/service-account-token",
            {},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ("example.com/anything", {}, []),
    ],
)
def test_the_type_of_a_secret_says_which_keys_it_has(type_: str, data: Object, errors: list[str]) -> None:
    assert create(SECRETS, sample(SECRETS, type=type_, data=data))[1] == errors


def test_a_secret_has_one_mebibyte_at_most() -> None:
    assert create(SECRETS, sample(SECRETS, data={"a": b64("x" * MIB)}))[1] == []
    assert refused(SECRETS, sample(SECRETS, data={"a": b64("x" * MIB), "b": b64("y")})) == [
        "data: Too long: may not be more than 1048576 bytes"
    ]


def test_values_of_a_secret_are_base64() -> None:
    assert len(refused(SECRETS, sample(SECRETS, data={"a": "%%%"}))) == 1


def test_an_immutable_secret_stays_as_it_is() -> None:
    old = accepted(SECRETS, sample(SECRETS, data={"a": ""}, immutable=True))
    _, errors = update(SECRETS, {**old, "stringData": {"a": "x"}}, old)
    assert errors == ["data: Forbidden: field is immutable when `immutable` is set"]


# --- service accounts ------------------------------------------------------------------------------------


def test_a_service_account_needs_nothing_but_a_name() -> None:
    stored = accepted(SERVICEACCOUNTS, sample(SERVICEACCOUNTS, secrets=[{"name": "s"}]))
    assert cells(SERVICEACCOUNTS, stored) == ["x", "63s"]
    assert refused(SERVICEACCOUNTS, sample(SERVICEACCOUNTS, secrets="s"))


def test_a_secret_may_be_named_twice_and_without_a_name() -> None:
    accepted(SERVICEACCOUNTS, sample(SERVICEACCOUNTS, secrets=[{"name": "s"}, {"name": "s"}, {"kind": "Secret"}]))


# --- resource quotas -------------------------------------------------------------------------------------


def quota(**spec: object) -> Object:
    return sample(RESOURCEQUOTAS, spec=spec)


def test_amounts_of_a_quota_are_stored_in_canonical_form() -> None:
    hard = {"count/widgets.example.com": "1000m", "requests.memory": "1024Mi", "pods": 5}
    stored = accepted(RESOURCEQUOTAS, quota(hard=hard))
    assert stored["spec"]["hard"] == {"count/widgets.example.com": "1", "requests.memory": "1Gi", "pods": "5"}


@pytest.mark.parametrize(
    ("hard", "error"),
    [
        ({"widgets": "1"}, 'spec.hard[widgets]: Invalid value: "widgets": must be a standard resource for quota'),
        ({"pods": "1500m"}, 'spec.hard[pods]: Invalid value: "1500m": must be an integer'),
        ({"count/a.b": "0.5"}, 'spec.hard[count/a.b]: Invalid value: "500m": must be an integer'),
        ({"cpu": "-1"}, 'spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
        (
            {"cpu": "many"},
            'spec.hard[cpu]: Invalid value: "many": quantities must match the regular expression '
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_amounts_of_a_quota_must_make_sense(hard: Object, error: str) -> None:
    assert refused(RESOURCEQUOTAS, quota(hard=hard)) == [error]


@pytest.mark.parametrize("hard", [{"cpu": "500m"}, {"hugepages-2Mi": "1"}, {"requests.example.com/gpu": "1"}])
def test_computed_resources_may_be_limited_in_parts(hard: Object) -> None:
    accepted(RESOURCEQUOTAS, quota(hard=hard))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"scopes": ["Best"]}, "unsupported scope"),
        ({"scopes": ["BestEffort"], "hard": {"cpu": "1"}}, "unsupported scope applied to resource"),
        ({"scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
    ],
)
def test_scopes_of_a_quota_must_fit(spec: Object, error: str) -> None:
    (text,) = refused(RESOURCEQUOTAS, quota(**spec))
    assert text.startswith("spec.scopes: Invalid value: [")
    assert text.endswith(f": {error}")


def test_scope_requirements_follow_their_operator() -> None:
    def errors(**requirement: object) -> list[str]:
        return create(RESOURCEQUOTAS, quota(scopeSelector={"matchExpressions": [requirement]}))[1]

    field = "spec.scopeSelector.matchExpressions"
    assert errors(scopeName="PriorityClass", operator="In", values=["a"]) == []
    assert errors(scopeName="PriorityClass", operator="In") == [
        f"{field}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope "
        f"selector"
    ]
    assert errors(scopeName="Terminating", operator="DoesNotExist")[0].startswith(
        f"{field}.operator: Invalid value: \"DoesNotExist\": must be 'Exists' when scope is"
    )
    assert errors(scopeName="PriorityClass", operator="Exists", values=["a"])[0].startswith(f"{field}.values: Invalid")
    covered = {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}
    assert create(RESOURCEQUOTAS, quota(hard={"cpu": "1"}, scopeSelector=covered))[1] == [
        f'{field}.scopeName: Invalid value: "BestEffort": unsupported scope applied to resource'
    ]
    assert errors(scopeName="PriorityClass", operator="Like") == [
        f'{field}.operator: Invalid value: "Like": not a valid selector operator'
    ]
    assert errors(scopeName="Best", operator="Exists") == [
        f'{field}.scopeName: Invalid value: "Best": unsupported scope'
    ]


def test_scopes_of_a_quota_never_change() -> None:
    old = accepted(RESOURCEQUOTAS, quota(scopes=["Terminating"]))
    _, errors = update(RESOURCEQUOTAS, quota(scopes=["NotTerminating"]), old)
    assert errors == ['spec.scopes: Invalid value: ["NotTerminating"]: field is immutable']


def test_a_quota_shows_requests_and_limits_apart() -> None:
    hard, used = {"pods": "5", "limits.cpu": "2", "configmaps": "9"}, {"pods": "1", "limits.cpu": "1"}
    obj = sample(RESOURCEQUOTAS, status={"hard": hard, "used": used})
    assert cells(RESOURCEQUOTAS, obj) == ["x", "configmaps: 0/9, pods: 1/5", "limits.cpu: 1/2", "63s"]
