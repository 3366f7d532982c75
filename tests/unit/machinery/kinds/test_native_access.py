"""RBAC kinds, leases, certificate requests and reviews."""

import base64
import datetime
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll.machinery.kinds import reviews
from atoll.machinery.kinds.certificates.signingrequests import CERTIFICATESIGNINGREQUESTS
from atoll.machinery.kinds.coordination.leases import LEASES
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.rbac.bindings import CLUSTERROLEBINDINGS, ROLEBINDINGS
from atoll.machinery.kinds.rbac.roles import CLUSTERROLES, ROLES
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time
from harness.models.native_write import NOW, accepted, create, refused, sample, update

GROUP = "rbac.authorization.k8s.io"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}


def cells(kind: Kind, obj: Object) -> list[object]:
    now_s = parse_time(NOW)
    assert kind.cells is not None
    assert now_s is not None
    return kind.cells(obj, now_s + 63)


# --- roles -----------------------------------------------------------------------------------------------


def test_a_role_may_have_no_rules() -> None:
    accepted(ROLES, sample(ROLES, rules=None))
    stored = accepted(CLUSTERROLES, sample(CLUSTERROLES, rules=[READ, {"nonResourceURLs": ["/x"], "verbs": ["*"]}]))
    assert cells(CLUSTERROLES, stored) == ["x", NOW]


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({**READ, "verbs": []}, "rules[0].verbs: Required value: verbs must contain at least one value"),
        (
            {**READ, "apiGroups": []},
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            {**READ, "resources": []},
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
        (
            {**READ, "nonResourceURLs": ["/x"]},
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and '
            "non-resource URLs",
        ),
    ],
)
def test_a_rule_names_what_it_allows(rule: Object, error: str) -> None:
    assert refused(CLUSTERROLES, sample(CLUSTERROLES, rules=[rule])) == [error]


def test_a_role_in_a_namespace_grants_no_paths() -> None:
    assert refused(ROLES, sample(ROLES, rules=[{"nonResourceURLs": ["/x"], "verbs": ["get"]}])) == [
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'
    ]


def test_an_aggregated_role_selects_others() -> None:
    chosen = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    accepted(CLUSTERROLES, sample(CLUSTERROLES, rules=None, aggregationRule=chosen))
    assert refused(CLUSTERROLES, sample(CLUSTERROLES, aggregationRule={"clusterRoleSelectors": []})) == [
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if "
        "aggregationRule is non-nil"
    ]
    wrong = {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]}
    (error,) = refused(CLUSTERROLES, sample(CLUSTERROLES, aggregationRule=wrong))
    assert "not a valid selector operator" in error


# --- bindings --------------------------------------------------------------------------------------------


def binding(kind: Kind, role: Object | None = None, *subjects: Object) -> Object:
    return sample(kind, roleRef={"kind": "ClusterRole", "name": "r", **(role or {})}, subjects=list(subjects))


def test_groups_of_roles_and_subjects_are_filled_in() -> None:
    subjects = [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}]
    subjects.append({"kind": "ServiceAccount", "name": "s", "namespace": "n"})
    stored = accepted(CLUSTERROLEBINDINGS, binding(CLUSTERROLEBINDINGS, None, *subjects))
    assert stored["roleRef"]["apiGroup"] == GROUP
    assert [subject.get("apiGroup") for subject in stored["subjects"]] == [GROUP, GROUP, None]
    assert cells(CLUSTERROLEBINDINGS, stored) == ["x", "ClusterRole/r", "63s", "u", "g", "n/s"]


@pytest.mark.parametrize(
    ("role", "error"),
    [
        ({"kind": "Role"}, 'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'),
        ({"apiGroup": "x"}, f'roleRef.apiGroup: Unsupported value: "x": supported values: "{GROUP}"'),
        ({"name": ""}, "roleRef.name: Required value"),
        ({"name": "a/b"}, "roleRef.name: Invalid value: \"a/b\": may not contain '/'"),
    ],
)
def test_a_cluster_binding_gives_a_cluster_role(role: Object, error: str) -> None:
    assert refused(CLUSTERROLEBINDINGS, binding(CLUSTERROLEBINDINGS, role)) == [error]


def test_a_binding_in_a_namespace_gives_either_role() -> None:
    accepted(ROLEBINDINGS, binding(ROLEBINDINGS, {"kind": "Role"}))
    accepted(ROLEBINDINGS, binding(ROLEBINDINGS, {"kind": "ClusterRole"}))
    assert refused(ROLEBINDINGS, binding(ROLEBINDINGS, {"kind": "X"})) == [
        'roleRef.kind: Unsupported value: "X": supported values: "Role", "ClusterRole"'
    ]


def test_a_binding_without_a_role_is_refused_once() -> None:
    assert len(refused(ROLEBINDINGS, sample(ROLEBINDINGS))) == 1


@pytest.mark.parametrize(
    ("subject", "error"),
    [
        (
            {"kind": "Robot", "name": "r"},
            'kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"',
        ),
        ({"kind": "User", "name": ""}, "name: Required value"),
        (
            {"kind": "User", "name": "u", "apiGroup": "x"},
            f'apiGroup: Unsupported value: "x": supported values: "{GROUP}"',
        ),
        ({"kind": "ServiceAccount", "name": "s"}, "namespace: Required value"),
        (
            {"kind": "ServiceAccount", "name": "s", "namespace": "n", "apiGroup": GROUP},
            f'apiGroup: Unsupported value: "{GROUP}": supported values: ""',
        ),
    ],
)
def test_a_subject_is_named_in_full(subject: Object, error: str) -> None:
    assert refused(CLUSTERROLEBINDINGS, binding(CLUSTERROLEBINDINGS, None, subject)) == [f"subjects[0].{error}"]


def test_a_service_account_is_named_by_a_subdomain() -> None:
    subject = {"kind": "ServiceAccount", "name": "S", "namespace": "n"}
    (error,) = refused(ROLEBINDINGS, binding(ROLEBINDINGS, None, subject))
    assert error.startswith('subjects[0].name: Invalid value: "S": a lowercase RFC 1123 subdomain')


def test_a_service_account_of_the_same_namespace_needs_no_namespace() -> None:
    accepted(ROLEBINDINGS, binding(ROLEBINDINGS, None, {"kind": "ServiceAccount", "name": "s"}))


def test_the_role_of_a_binding_never_changes() -> None:
    old = accepted(ROLEBINDINGS, binding(ROLEBINDINGS))
    _, errors = update(ROLEBINDINGS, binding(ROLEBINDINGS, {"name": "other"}), old)
    (error,) = errors
    assert error.startswith("roleRef: Invalid value: {")
    assert error.endswith("cannot change roleRef")
    assert update(ROLEBINDINGS, binding(ROLEBINDINGS, None, {"kind": "User", "name": "u"}), old)[1] == []


# --- leases ----------------------------------------------------------------------------------------------


def test_a_lease_shows_its_holder() -> None:
    stored = accepted(LEASES, sample(LEASES, spec={"holderIdentity": "me", "leaseDurationSeconds": 1}))
    assert cells(LEASES, stored) == ["x", "me", "63s"]
    accepted(LEASES, sample(LEASES, spec={"holderIdentity": "", "renewTime": "2026-01-02T03:04:05.000000Z"}))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"),
        ({"preferredHolder": "p"}, "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"),
        ({"strategy": "X"}, 'spec.strategy: Unsupported value: "X": supported values: "OldestEmulationVersion"'),
    ],
)
def test_a_lease_counts_sensibly(spec: Object, error: str) -> None:
    assert refused(LEASES, sample(LEASES, spec=spec)) == [error]


# --- certificate requests --------------------------------------------------------------------------------


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def pem_request() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key(), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


@cache
def pem_certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key().public_key())
    builder = builder.serial_number(1).not_valid_before(begin).not_valid_after(begin + datetime.timedelta(1))
    return builder.sign(key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def request(**spec: object) -> Object:
    base: Object = {"request": b64(pem_request()), "signerName": "example.com/s", "usages": ["client auth"]}
    return sample(CERTIFICATESIGNINGREQUESTS, spec={**base, **spec})


def test_who_asks_for_a_certificate_is_not_for_the_client_to_say() -> None:
    stored = accepted(
        CERTIFICATESIGNINGREQUESTS, request(username="root", groups=["system:masters"], uid="1", extra={})
    )
    assert set(stored["spec"]) == {"request", "signerName", "usages"}
    assert cells(CERTIFICATESIGNINGREQUESTS, stored) == ["x", "63s", "example.com/s", "", "<none>", "Pending"]
    assert CERTIFICATESIGNINGREQUESTS.field_labels["spec.signerName"](stored) == "example.com/s"


def test_line_breaks_in_a_request_are_overlooked() -> None:
    text = b64(pem_request())
    stored = accepted(CERTIFICATESIGNINGREQUESTS, request(request=text[:9] + "\n" + text[9:]))
    assert stored["spec"]["request"] == text


def tampered() -> str:
    der = bytearray(x509.load_pem_x509_csr(pem_request()).public_bytes(serialization.Encoding.DER))
    der[der.index(b"me")] = ord("n")
    return b64(
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + base64.encodebytes(bytes(der))
        + b"-----END CERTIFICATE REQUEST-----\n"
    )


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b64(b"junk"), "PEM block type must be CERTIFICATE REQUEST"),
        (b64(b"-----BEGIN CERTIFICATE REQUEST-----\njunk\n"), "the certificate request cannot be parsed"),
        ("tampered", "the signature of the certificate request is not valid"),
    ],
)
def test_a_request_is_well_formed_and_signed(body: str, error: str) -> None:
    (text,) = refused(CERTIFICATESIGNINGREQUESTS, request(request=tampered() if body == "tampered" else body))
    assert text.startswith("spec.request: Invalid value: ")
    assert text.endswith(error)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["any", "any"]}, 'spec.usages[1]: Duplicate value: "any"'),
        (
            {"expirationSeconds": 599},
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
        (
            {"signerName": "kubernetes.io/legacy-unknown"},
            'spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via '
            "this API version",
        ),
        (
            {"signerName": "example.com"},
            'spec.signerName: Invalid value: "example.com": must be a fully qualified domain and path of the form '
            "'example.com/signer-name'",
        ),
        (
            {"signerName": "example/s"},
            'spec.signerName: Invalid value: "example": should be a domain with at least two segments separated by '
            "dots",
        ),
    ],
)
def test_a_request_says_what_it_wants(spec: Object, error: str) -> None:
    assert refused(CERTIFICATESIGNINGREQUESTS, request(**spec)) == [error]


def test_an_unknown_usage_is_refused() -> None:
    (error,) = refused(CERTIFICATESIGNINGREQUESTS, request(usages=["flying"]))
    assert error.startswith('spec.usages[0]: Unsupported value: "flying": supported values: "any", "cert sign", ')


def test_a_signer_has_labels_of_dns() -> None:
    errors = refused(CERTIFICATESIGNINGREQUESTS, request(signerName="Example.com/S"))
    assert [error.partition(": a lower")[0] for error in errors] == [
        'spec.signerName: Invalid value: "Example.com": validating label "Example"',
        'spec.signerName: Invalid value: "S": validating label "S"',
    ]


def test_the_content_of_a_request_stays() -> None:
    old = accepted(CERTIFICATESIGNINGREQUESTS, request())
    stored, errors = update(CERTIFICATESIGNINGREQUESTS, {**old, "spec": {"signerName": "evil.com/x"}}, old)
    assert errors == []
    assert stored["spec"] == old["spec"]


def with_status(*types: str, status: str = "True", **more: object) -> Object:
    stored = accepted(CERTIFICATESIGNINGREQUESTS, request())
    conditions = [{"type": type_, "status": status} for type_ in types]
    return {**stored, "status": {"conditions": conditions, **more}}


def status_errors(obj: Object, old: Object) -> list[str]:
    checks = CERTIFICATESIGNINGREQUESTS.validate_update, CERTIFICATESIGNINGREQUESTS.validate_status
    return [str(error) for check in checks for error in check(obj, old)]


def test_approval_is_not_for_the_status_endpoint() -> None:
    assert CERTIFICATESIGNINGREQUESTS.validate_update(with_status("Approved"), with_status()) == []
    assert status_errors(with_status("Approved"), with_status()) == [
        'status.conditions: Forbidden: updates may not add a condition of type "Approved"'
    ]
    changed = with_status("Approved")
    changed["status"]["conditions"][0]["reason"] = "Other"
    assert status_errors(changed, with_status("Approved")) == [
        'status.conditions: Forbidden: updates may not modify a condition of type "Approved"'
    ]
    assert status_errors(with_status("Failed"), with_status()) == []


def test_what_was_decided_stays() -> None:
    assert status_errors(with_status(), with_status("Denied")) == [
        'status.conditions: Forbidden: updates may not remove a condition of type "Denied"'
    ]
    errors = [
        str(e) for e in CERTIFICATESIGNINGREQUESTS.validate_update(with_status("Approved", "Denied"), with_status())
    ]
    assert errors == [
        'status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'
    ]


def test_conditions_of_a_request_are_well_formed() -> None:
    def errors(*args: str, **more: str) -> list[str]:
        found = CERTIFICATESIGNINGREQUESTS.validate_update(with_status(*args, **more), with_status())
        return [str(error) for error in found]

    assert errors("Approved", status="False") == [
        'status.conditions[0].status: Unsupported value: "False": supported values: "True"'
    ]
    assert errors("Odd", "Odd") == ['status.conditions[1].type: Duplicate value: "Odd"']
    assert errors("") == ["status.conditions[0].type: Required value"]
    assert errors("Odd", status="") == ["status.conditions[0].status: Required value"]


def test_a_certificate_is_set_once() -> None:
    first = with_status("Approved", certificate=b64(pem_certificate()))
    assert status_errors(first, with_status("Approved")) == []
    assert cells(CERTIFICATESIGNINGREQUESTS, first)[-1] == "Approved,Issued"
    assert status_errors(with_status("Approved", certificate=b64(pem_certificate() * 2)), first) == [
        "status.certificate: Forbidden: updates may not modify existing certificate content"
    ]
    assert "CERTIFICATE PEM block" in status_errors(with_status(certificate=b64(b"x")), with_status())[0]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), "Pending"),
        (("Approved",), "Approved"),
        (("Denied",), "Denied"),
        (("Approved", "Failed"), "Approved,Failed"),
    ],
)
def test_a_request_shows_how_far_it_got(types: tuple[str, ...], expected: str) -> None:
    assert cells(CERTIFICATESIGNINGREQUESTS, with_status(*types))[-1] == expected


def test_a_request_shows_its_wanted_life() -> None:
    assert cells(CERTIFICATESIGNINGREQUESTS, request(expirationSeconds=86400))[-2] == "24h"


# --- reviews ---------------------------------------------------------------------------------------------

RESOURCE = {"resource": "configmaps", "verb": "get", "namespace": "n"}


@pytest.mark.parametrize(
    "kind",
    [
        reviews.TOKENREVIEWS,
        reviews.SELFSUBJECTREVIEWS,
        reviews.SUBJECTACCESSREVIEWS,
        reviews.TOKENREQUEST,
        reviews.SELFSUBJECTACCESSREVIEWS,
        reviews.SELFSUBJECTRULESREVIEWS,
        reviews.LOCALSUBJECTACCESSREVIEWS,
    ],
    ids=lambda kind: kind.kind,
)
def test_the_answer_in_a_question_is_dropped(kind: Kind) -> None:
    go_client = {"allowed": False, "resourceRules": None, "incomplete": False, "token": "", "expirationTimestamp": None}
    assert "status" not in create(kind, sample(kind, status=go_client))[0]


def test_a_review_asks_about_one_thing() -> None:
    kind = reviews.SELFSUBJECTACCESSREVIEWS
    accepted(kind, sample(kind, spec={"resourceAttributes": RESOURCE}))
    accepted(kind, sample(kind, spec={"nonResourceAttributes": {"path": "/x"}, "resourceAttributes": None}))
    assert refused(kind, sample(kind, spec={})) == [
        "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must "
        "be specified"
    ]
    both = {"nonResourceAttributes": {"path": "/x"}, "resourceAttributes": RESOURCE}
    (error,) = refused(kind, sample(kind, spec=both))
    assert error.endswith("cannot be specified in combination with resourceAttributes")


def test_a_review_of_another_names_a_user_or_a_group() -> None:
    kind = reviews.SUBJECTACCESSREVIEWS
    accepted(kind, sample(kind, spec={"resourceAttributes": RESOURCE, "groups": ["g"]}))
    assert refused(kind, sample(kind, spec={"resourceAttributes": RESOURCE})) == [
        'spec.user: Invalid value: "": at least one of user or group must be specified'
    ]


def test_a_local_review_stays_in_its_namespace() -> None:
    kind = reviews.LOCALSUBJECTACCESSREVIEWS
    accepted(kind, sample(kind, spec={"user": "u", "resourceAttributes": RESOURCE}))
    elsewhere = {"user": "u", "resourceAttributes": {**RESOURCE, "namespace": "m"}}
    assert refused(kind, sample(kind, spec=elsewhere)) == [
        'spec.resourceAttributes.namespace: Invalid value: "m": must match metadata.namespace'
    ]
    (error,) = refused(kind, sample(kind, spec={"user": "u", "nonResourceAttributes": {"path": "/x"}}))
    assert error.endswith("disallowed on this kind of request")


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        (
            {},
            "requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or "
            "rawSelector is required",
        ),
        (
            {"requirements": [{"key": "", "operator": "Exists"}]},
            "requirements[0].key: Required value: must be specified",
        ),
        (
            {"requirements": [{"key": "a", "operator": "In"}]},
            "requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            {"requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
    ],
)
def test_selectors_in_a_review_are_well_formed(selector: Object, error: str) -> None:
    kind = reviews.SELFSUBJECTACCESSREVIEWS
    obj = sample(kind, spec={"resourceAttributes": {**RESOURCE, "labelSelector": selector}})
    assert refused(kind, obj) == [f"spec.resourceAttributes.labelSelector.{error}"]


def test_a_selector_in_a_review_is_written_once_and_with_a_known_operator() -> None:
    def errors(**selector: object) -> list[str]:
        spec = {"resourceAttributes": {**RESOURCE, "fieldSelector": selector}}
        return create(reviews.SELFSUBJECTACCESSREVIEWS, sample(reviews.SELFSUBJECTACCESSREVIEWS, spec=spec))[1]

    field = "spec.resourceAttributes.fieldSelector"
    assert errors(rawSelector="a=b") == []
    assert errors(rawSelector="a=b", requirements=[{"key": "a", "operator": "Exists"}]) == [
        f'{field}.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements'
    ]
    assert errors(requirements=[{"key": "a", "operator": "Like"}]) == [
        f'{field}.requirements[0].operator: Invalid value: "Like": not a valid selector operator'
    ]


def test_a_token_review_carries_a_token() -> None:
    kind = reviews.TOKENREVIEWS
    accepted(kind, sample(kind, spec={"token": "t"}))
    assert refused(kind, sample(kind, spec={"token": ""})) == ["spec.token: Required value"]
    assert refused(kind, sample(kind, spec={})) == ["spec.token: Required value"]


def test_a_token_request_asks_for_an_hour_unless_it_says_otherwise() -> None:
    kind = reviews.TOKENREQUEST
    assert accepted(kind, sample(kind))["spec"] == {"audiences": [], "expirationSeconds": 3600}
    go_client = {"audiences": None, "expirationSeconds": None, "boundObjectRef": None}
    assert accepted(kind, sample(kind, spec=go_client))["spec"] == {"audiences": [], "expirationSeconds": 3600}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (
            {"expirationSeconds": 599},
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            {"expirationSeconds": 2**32 + 1},
            "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            {"boundObjectRef": {"kind": "X"}},
            'spec.boundObjectRef.kind: Unsupported value: "X": supported values: "Node", "Pod", "Secret"',
        ),
    ],
)
def test_a_token_lives_within_bounds(spec: Object, error: str) -> None:
    assert refused(reviews.TOKENREQUEST, sample(reviews.TOKENREQUEST, spec=spec)) == [error]
