"""Webhook configurations and admission policies: defaults, validation, table columns."""

import pytest

from atoll.machinery.kinds.admissionregistration.mutatingpolicies import (
    MUTATINGADMISSIONPOLICIES,
    MUTATINGADMISSIONPOLICYBINDINGS,
)
from atoll.machinery.kinds.admissionregistration.validatingpolicies import (
    VALIDATINGADMISSIONPOLICIES,
    VALIDATINGADMISSIONPOLICYBINDINGS,
)
from atoll.machinery.kinds.admissionregistration.webhooks import (
    MUTATINGWEBHOOKCONFIGURATIONS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
)
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time
from harness.models.native_write import NOW, accepted, create, refused, sample, update

RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
HOOK: Object = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://hook.example.com/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [RULE],
}
HOOK_KINDS = [MUTATINGWEBHOOKCONFIGURATIONS, VALIDATINGWEBHOOKCONFIGURATIONS]
POLICY: Object = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
MUTATION = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}
MUTATING: Object = {
    "matchConstraints": {"resourceRules": [RULE]},
    "mutations": [MUTATION],
    "reinvocationPolicy": "Never",
}
BINDING: Object = {"policyName": "p", "validationActions": ["Deny"]}


def hooks(kind: Kind, *webhooks: Object) -> Object:
    return sample(kind, webhooks=list(webhooks))


def hook_errors(**change: object) -> list[str]:
    obj = hooks(VALIDATINGWEBHOOKCONFIGURATIONS, {**HOOK, **change})
    return [error.removeprefix("webhooks[0].") for error in create(VALIDATINGWEBHOOKCONFIGURATIONS, obj)[1]]


def spec_errors(kind: Kind, base: Object, **change: object) -> list[str]:
    spec = {name: value for name, value in {**base, **change}.items() if value is not ...}
    return create(kind, sample(kind, spec=spec))[1]


def cells(kind: Kind, obj: Object) -> list[object]:
    now_s = parse_time(NOW)
    assert kind.cells is not None
    assert now_s is not None
    return kind.cells(obj, now_s + 63)


# --- webhooks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HOOK_KINDS, ids=lambda kind: kind.kind)
def test_a_webhook_gets_defaults(kind: Kind) -> None:
    hook = {**HOOK, "clientConfig": {"service": {"name": "s", "namespace": "n"}}}
    stored = accepted(kind, hooks(kind, hook))["webhooks"][0]
    assert stored["failurePolicy"] == "Fail"
    assert stored["matchPolicy"] == "Equivalent"
    assert stored["namespaceSelector"] == stored["objectSelector"] == {}
    assert stored["timeoutSeconds"] == 10
    assert stored["rules"][0]["scope"] == "*"
    assert stored["clientConfig"]["service"]["port"] == 443
    assert stored.get("reinvocationPolicy") == ("Never" if kind is MUTATINGWEBHOOKCONFIGURATIONS else None)


@pytest.mark.parametrize("kind", HOOK_KINDS, ids=lambda kind: kind.kind)
def test_a_webhook_configuration_is_enforced_and_warns_of_nothing(kind: Kind) -> None:
    obj = hooks(kind, HOOK)
    assert kind.warnings(obj) == []
    assert cells(kind, obj) == ["x", 1, "63s"]


def test_defaults_of_two_webhooks_are_not_one_object() -> None:
    kind = VALIDATINGWEBHOOKCONFIGURATIONS
    first, second = accepted(kind, hooks(kind, HOOK, {**HOOK, "name": "b.example.com"}))["webhooks"]
    first["namespaceSelector"]["matchLabels"] = {}
    assert second["namespaceSelector"] == {}


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({}, []),
        (
            {"name": "a.b"},
            ['name: Invalid value: "a.b": should be a domain with at least three segments separated by dots'],
        ),
        ({"name": ""}, ["name: Required value"]),
        (
            {"timeoutSeconds": 31},
            ["timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"],
        ),
        (
            {"timeoutSeconds": 0},
            ["timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds"],
        ),
        ({"sideEffects": "Some"}, ['sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"']),
        ({"failurePolicy": "X"}, ['failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"']),
        ({"admissionReviewVersions": []}, ["admissionReviewVersions: Required value: must specify one of v1, v1beta1"]),
        (
            {"admissionReviewVersions": ["v2"]},
            ['admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1'],
        ),
        (
            {"admissionReviewVersions": ["v1", "v1"]},
            ['admissionReviewVersions[1]: Invalid value: "v1": duplicate version'],
        ),
        (
            {"admissionReviewVersions": ["v1", "V"]},
            [
                'admissionReviewVersions[1]: Invalid value: "V": a DNS-1035 label must consist of lower case '
                "alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric "
                "character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            ],
        ),
        ({"clientConfig": {}}, ["clientConfig: Required value: exactly one of url or service is required"]),
        (
            {"clientConfig": {"url": "https://a", "service": {"name": "s", "namespace": "n"}}},
            ["clientConfig: Required value: exactly one of url or service is required"],
        ),
        ({"namespaceSelector": {"matchLabels": {"a b": ""}}}, ...),
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, ...),
    ],
)
def test_a_webhook_is_well_formed(change: Object, errors: object) -> None:
    found = hook_errors(**change)
    assert found == errors if errors is not ... else len(found) == 1


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("http://a", "'https' is the only allowed URL scheme; desired format: https://host[/path]"),
        ("https://[x", "url must be a valid URL: Invalid IPv6 URL; desired format: https://host[/path]"),
        ("https:///x", "host must be specified; desired format: https://host[/path]"),
        ("https://u:p@a", "user information is not permitted in the URL"),
        ("https://a?x=1", "query parameters are not permitted in the URL"),
        ("https://a#x", "fragments are not permitted in the URL"),
    ],
)
def test_a_webhook_is_called_at_a_plain_https_url(url: str, detail: str) -> None:
    (error,) = hook_errors(clientConfig={"url": url})
    assert error.startswith(("clientConfig.url: Invalid value: ", "clientConfig.url: Required value: "))
    assert error.endswith(f": {detail}")
    assert "u:p" not in error


@pytest.mark.parametrize(
    ("service", "error"),
    [
        ({"port": 0}, "port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"),
        ({"path": "x"}, "path: Invalid value: \"x\": must start with a '/'"),
        ({"path": "/a//b"}, 'path: Invalid value: "/a//b": segment[1] may not be empty'),
        ({"path": "//"}, 'path: Invalid value: "//": segment[0] may not be empty'),
        ({"name": ""}, "name: Required value"),
    ],
)
def test_a_webhook_service_is_named_in_full(service: Object, error: str) -> None:
    full = {"name": "s", "namespace": "n", **service}
    assert hook_errors(clientConfig={"service": full}) == [f"clientConfig.service.{error}"]


def test_the_path_of_a_webhook_service_is_made_of_plain_names() -> None:
    (error,) = hook_errors(clientConfig={"service": {"name": "s", "namespace": "n", "path": "/a/B"}})
    assert error.startswith('clientConfig.service.path: Invalid value: "/a/B": segment[1]: a lowercase RFC 1123')


def test_a_webhook_service_may_have_a_path() -> None:
    assert hook_errors(clientConfig={"service": {"name": "s", "namespace": "n", "path": "/a/b/"}}) == []


def test_certificates_of_a_webhook_are_pem() -> None:
    errors = hook_errors(clientConfig={"url": "https://a", "caBundle": "anVuaw=="})
    assert errors == [
        'clientConfig.caBundle: Invalid value: "<certificate data>": unable to load root certificates: unable to parse '
        "bytes as PEM block"
    ]


def test_line_breaks_in_certificates_are_overlooked() -> None:
    kind = VALIDATINGWEBHOOKCONFIGURATIONS
    hook = {**HOOK, "clientConfig": {"url": "https://a", "caBundle": "anVu\naw=="}}
    assert create(kind, hooks(kind, hook))[0]["webhooks"][0]["clientConfig"]["caBundle"] == "anVuaw=="


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"operations": []}, "operations: Required value"),
        (
            {"operations": ["*", "CREATE"]},
            'operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other operations',
        ),
        (
            {"operations": ["LOOK"]},
            'operations[0]: Unsupported value: "LOOK": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"',
        ),
        ({"apiGroups": []}, "apiGroups: Required value"),
        (
            {"apiGroups": ["*", "a"]},
            'apiGroups: Invalid value: ["*","a"]: if \'*\' is present, must not specify other API groups',
        ),
        ({"apiVersions": [""]}, "apiVersions[0]: Required value"),
        ({"resources": []}, "resources: Required value"),
        ({"resources": [""]}, "resources[0]: Required value"),
        (
            {"resources": ["a/*", "a/b"]},
            "resources[1]: Invalid value: \"a/b\": if 'a/*' is present, must not specify a/b",
        ),
        (
            {"resources": ["*/b", "a/b"]},
            "resources[1]: Invalid value: \"a/b\": if '*/b' is present, must not specify a/b",
        ),
        (
            {"resources": ["*/*", "a/b"]},
            'resources: Invalid value: ["*/*","a/b"]: if \'*/*\' is present, must not specify other resources',
        ),
        (
            {"resources": ["*", "a"]},
            'resources: Invalid value: ["*","a"]: if \'*\' is present, must not specify '
            "other resources without subresources",
        ),
        ({"scope": "Some"}, 'scope: Unsupported value: "Some": supported values: "*", "Cluster", "Namespaced"'),
    ],
)
def test_a_rule_says_what_it_matches(rule: Object, error: str) -> None:
    assert hook_errors(rules=[{**RULE, **rule}]) == [f"rules[0].{error}"]


def test_wildcards_may_stand_beside_what_they_do_not_cover() -> None:
    assert hook_errors(rules=[{**RULE, "resources": ["*", "a/b", "*/scale"]}]) == []


def test_names_of_webhooks_are_unique() -> None:
    kind = MUTATINGWEBHOOKCONFIGURATIONS
    errors = refused(kind, hooks(kind, HOOK, HOOK))
    assert errors == ['webhooks[1].name: Duplicate value: "a.example.com"']


def test_match_conditions_are_named_and_bounded() -> None:
    condition = {"name": "c", "expression": "true"}
    assert hook_errors(matchConditions=[condition]) == []
    assert hook_errors(matchConditions=[condition, condition]) == ['matchConditions[1].name: Duplicate value: "c"']
    assert "matchConditions[0].name: Required value" in hook_errors(matchConditions=[{**condition, "name": ""}])
    assert "matchConditions[0].expression: Required value" in hook_errors(
        matchConditions=[{**condition, "expression": " "}]
    )
    many = [{"name": f"c{index}", "expression": "true"} for index in range(65)]
    assert hook_errors(matchConditions=many) == ["matchConditions: Too many: 65: must have at most 64 items"]


def test_an_update_of_webhooks_is_checked_too() -> None:
    kind = VALIDATINGWEBHOOKCONFIGURATIONS
    old = accepted(kind, hooks(kind, HOOK))
    assert update(kind, hooks(kind, {**HOOK, "name": "a.b"}), old)[1]


# --- policies --------------------------------------------------------------------------------------------


def test_a_policy_gets_defaults() -> None:
    stored = accepted(VALIDATINGADMISSIONPOLICIES, sample(VALIDATINGADMISSIONPOLICIES, spec=POLICY))
    assert stored["spec"]["failurePolicy"] == "Fail"
    match = stored["spec"]["matchConstraints"]
    assert (match["matchPolicy"], match["namespaceSelector"], match["objectSelector"]) == ("Equivalent", {}, {})
    assert match["resourceRules"][0]["scope"] == "*"
    assert cells(VALIDATINGADMISSIONPOLICIES, stored) == ["x", 1, "<unset>", "63s"]


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({"matchConstraints": ...}, ["spec.matchConstraints: Required value"]),
        ({"matchConstraints": {}}, ["spec.matchConstraints.resourceRules: Required value"]),
        (
            {"validations": []},
            [
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        ),
        (
            {"validations": [{"expression": " "}]},
            ["spec.validations[0].expression: Required value: expression is not specified"],
        ),
        (
            {"validations": [{"expression": "a", "message": "a\nb"}]},
            ['spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks'],
        ),
        (
            {"validations": [{"expression": "a", "reason": "No"}]},
            [
                'spec.validations[0].reason: Unsupported value: "No": supported values: "Forbidden", "Invalid", '
                '"RequestEntityTooLarge", "Unauthorized"'
            ],
        ),
        (
            {"variables": [{"name": "a-b", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "a-b": must be a valid CEL identifier'],
        ),
        (
            {"variables": [{"name": "in", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier'],
        ),
        ({"paramKind": {"kind": "X"}}, ["spec.paramKind.apiVersion: Required value"]),
        ({"paramKind": {"apiVersion": "g/v1"}}, ["spec.paramKind.kind: Required value"]),
        (
            {"paramKind": {"apiVersion": "a/b/c", "kind": "X"}},
            ['spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
        ),
        (
            {"validations": [{"expression": "a", "message": " "}]},
            ['spec.validations[0].message: Invalid value: " ": must be non-empty if specified'],
        ),
        ({"auditAnnotations": [{"key": "k", "valueExpression": "'v'"}], "validations": ...}, []),
    ],
)
def test_a_validating_policy_is_well_formed(change: Object, errors: list[str]) -> None:
    assert spec_errors(VALIDATINGADMISSIONPOLICIES, POLICY, **change) == errors


@pytest.mark.parametrize(
    ("param", "start"),
    [
        ({"apiVersion": "G_/v1", "kind": "X"}, 'apiVersion: Invalid value: "G_": a lowercase RFC 1123 subdomain'),
        ({"apiVersion": "g/1", "kind": "X"}, 'apiVersion: Invalid value: "1": a DNS-1035 label'),
        ({"apiVersion": "v1", "kind": "X_"}, 'kind: Invalid value: "X_": may have mixed case, but should otherwise'),
    ],
)
def test_the_kind_of_parameters_is_a_kind(param: Object, start: str) -> None:
    (error,) = spec_errors(VALIDATINGADMISSIONPOLICIES, POLICY, paramKind=param)
    assert error.startswith(f"spec.paramKind.{start}")


def test_audit_annotations_are_unique_and_bounded() -> None:
    def errors(*annotations: Object) -> list[str]:
        return spec_errors(VALIDATINGADMISSIONPOLICIES, POLICY, auditAnnotations=list(annotations))

    one = {"key": "k", "valueExpression": "'v'"}
    assert errors(one, one) == ['spec.auditAnnotations[1].key: Duplicate value: "k"']
    assert "spec.auditAnnotations[0].valueExpression: Required value: must not exceed 5120 bytes in length" in errors(
        {"key": "k", "valueExpression": "x" * 5121}
    )
    (error,) = errors(*({"key": f"k{index}", "valueExpression": "'v'"} for index in range(21)))
    assert error.endswith("must not have more than 20 auditAnnotations")
    assert "name part" in errors({"key": "a b", "valueExpression": "'v'"})[0]


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({}, []),
        ({"mutations": []}, ["spec.mutations: Required value: mutations must contain at least one item"]),
        ({"reinvocationPolicy": ""}, ...),
        (
            {"mutations": [{"patchType": "JSONPatch"}]},
            ["spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"],
        ),
        (
            {"mutations": [{**MUTATION, "applyConfiguration": {"expression": "x"}}]},
            [
                'spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified '
                "when patchType is JSONPatch"
            ],
        ),
        (
            {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {}}]},
            ["spec.mutations[0].jsonPatch.expression: Required value: expression is not specified"],
        ),
        (
            {"matchConstraints": {"resourceRules": [{**RULE, "operations": ["DELETE"]}]}},
            [
                'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: '
                '"CREATE", "UPDATE"'
            ],
        ),
    ],
)
def test_a_mutating_policy_is_well_formed(change: Object, errors: object) -> None:
    found = spec_errors(MUTATINGADMISSIONPOLICIES, MUTATING, **change)
    assert found == errors if errors is not ... else "spec.reinvocationPolicy: Required value" in found


def test_a_mutating_policy_shows_its_parameters() -> None:
    spec = {**MUTATING, "paramKind": {"apiVersion": "g.io/v1", "kind": "P"}}
    stored = accepted(MUTATINGADMISSIONPOLICIES, sample(MUTATINGADMISSIONPOLICIES, spec=spec))
    assert cells(MUTATINGADMISSIONPOLICIES, stored) == ["x", 1, "g.io/v1/P", "63s"]


PARAM = {"name": "c", "parameterNotFoundAction": "Deny"}


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({}, []),
        ({"policyName": ""}, ["spec.policyName: Required value"]),
        (
            {"validationActions": []},
            ["spec.validationActions: Required value: at least one validation action is required"],
        ),
        ({"paramRef": PARAM}, []),
        ({"paramRef": {"name": "c"}}, ["spec.paramRef.parameterNotFoundAction: Required value"]),
        (
            {"paramRef": {"parameterNotFoundAction": "Deny"}},
            ["spec.paramRef: Required value: one of name or selector must be specified"],
        ),
        (
            {"paramRef": {**PARAM, "selector": {}}},
            [
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
            ],
        ),
        (
            {"paramRef": {**PARAM, "parameterNotFoundAction": "Cry"}},
            ['spec.paramRef.parameterNotFoundAction: Unsupported value: "Cry": supported values: "Deny", "Allow"'],
        ),
        ({"matchResources": {"resourceRules": [{**RULE, "resourceNames": ["a/b"]}]}}, ...),
    ],
)
def test_a_validating_binding_is_well_formed(change: Object, errors: object) -> None:
    found = spec_errors(VALIDATINGADMISSIONPOLICYBINDINGS, BINDING, **change)
    assert found == errors if errors is not ... else len(found) == 1


def test_names_in_a_binding_are_of_a_shape_and_unique() -> None:
    rule = {**RULE, "resourceNames": ["a", "a"]}
    match = {"resourceRules": [rule]}
    assert spec_errors(VALIDATINGADMISSIONPOLICYBINDINGS, BINDING, matchResources=match) == [
        'spec.matchResources.resourceRules[0].resourceNames[1]: Duplicate value: "a"'
    ]
    assert spec_errors(VALIDATINGADMISSIONPOLICYBINDINGS, BINDING, paramRef={**PARAM, "name": "a/b"}) == [
        "spec.paramRef.name: Invalid value: \"a/b\": may not contain '/'"
    ]
    selector = {"selector": {"matchLabels": {"a b": ""}}, "parameterNotFoundAction": "Deny"}
    (error,) = spec_errors(VALIDATINGADMISSIONPOLICYBINDINGS, BINDING, paramRef=selector)
    assert error.startswith('spec.paramRef.selector.matchLabels: Invalid value: "a b": name part')


def test_a_binding_does_not_deny_and_warn() -> None:
    (error,) = spec_errors(VALIDATINGADMISSIONPOLICYBINDINGS, BINDING, validationActions=["Deny", "Warn"])
    assert "must not contain both Deny and Warn" in error
    assert spec_errors(VALIDATINGADMISSIONPOLICYBINDINGS, BINDING, validationActions=["Deny", "Deny"]) == [
        'spec.validationActions[1]: Duplicate value: "Deny"'
    ]


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        (PARAM, "*/c"),
        ({**PARAM, "namespace": "n"}, "n/c"),
        ({"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Deny"}, "a=b"),
        (None, "<unset>"),
    ],
)
def test_a_binding_shows_its_parameters(param: Object | None, expected: str) -> None:
    kind = MUTATINGADMISSIONPOLICYBINDINGS
    stored = accepted(kind, sample(kind, spec={"policyName": "p", "paramRef": param}))
    assert cells(kind, stored) == ["x", "p", expected, "63s"]


@pytest.mark.parametrize(
    "kind", [MUTATINGADMISSIONPOLICIES, MUTATINGADMISSIONPOLICYBINDINGS], ids=lambda kind: kind.kind
)
def test_policies_are_enforced_and_warn_of_nothing(kind: Kind) -> None:
    assert kind.warnings(sample(kind)) == []
