"""Accounts, tokens, reviews, certificate requests and events, after the upstream conformance specs."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness.clients.api import MERGE, STRATEGIC, Api, Object, eventually

IN = "/api/v1/namespaces/default"
ACCOUNTS, SECRETS = f"{IN}/serviceaccounts", f"{IN}/secrets"
EVENTS, NEW_EVENTS = f"{IN}/events", "/apis/events.k8s.io/v1/namespaces/default/events"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TOKEN_SECRET = "kubernetes.io/service-account-token"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


# --- reviews ---


def test_access_of_a_service_account_is_reviewed_globally_and_in_a_namespace(api: Api) -> None:
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "e2e"}})
    user = "system:serviceaccount:default:e2e"
    asked = {
        "user": user,
        "resourceAttributes": {"verb": "get", "namespace": "default", "resource": "pods", "version": "v1"},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "spec": asked}

    def answers() -> list[bool]:
        found = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**body, "kind": "SubjectAccessReview"})
        local = {**body, "kind": "LocalSubjectAccessReview", "metadata": {"namespace": "default"}}
        here = api.post("/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", local)
        return [found.json["status"]["allowed"], here.json["status"]["allowed"]]

    assert answers() == [False, False]
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    api.post(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    api.post(
        f"{RBAC}/namespaces/default/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "e2e", "namespace": "default"}],
        },
    )
    assert answers() == [True, True]


# --- service accounts ---


def test_a_service_account_is_created_watched_patched_found_and_deleted(api: Api) -> None:
    with api.watch(f"{ACCOUNTS}?watch=1&labelSelector=static%3Dtrue") as events:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "labels": {"static": "true"}}}
        api.post(ACCOUNTS, body)
        assert events.next().type == "ADDED"
        api.patch(f"{ACCOUNTS}/a", {"automountServiceAccountToken": False}, STRATEGIC)
        event = events.next()
        assert (event.type, event.object["automountServiceAccountToken"]) == ("MODIFIED", False)
        assert names(api.get("/api/v1/serviceaccounts?labelSelector=static%3Dtrue").json) == ["a"]
        deleted = api.delete(f"{ACCOUNTS}?labelSelector=static%3Dtrue").json
        assert names(deleted) == ["a"]
        assert events.next().type == "DELETED"
    api.get(f"{ACCOUNTS}/a", expect=404)


def test_a_service_account_is_updated(api: Api) -> None:
    found = api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}).json
    found["automountServiceAccountToken"] = True
    assert api.put(f"{ACCOUNTS}/a", found).json["automountServiceAccountToken"] is True


def token_user(api: Api, token: str) -> Any:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    return api.post("/apis/authentication.k8s.io/v1/tokenreviews", review).json["status"]


def test_a_requested_token_passes_its_review(api: Api) -> None:
    made = api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}).json
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = api.post(f"{ACCOUNTS}/a/token", request).json
    assert answer["status"]["expirationTimestamp"]
    status = token_user(api, answer["status"]["token"])
    assert status["authenticated"] is True
    assert status["user"]["username"] == "system:serviceaccount:default:a"
    assert status["user"]["uid"] == made["metadata"]["uid"]
    assert "system:serviceaccounts:default" in status["user"]["groups"]


def test_the_root_certificate_is_in_every_namespace_and_comes_back(api: Api) -> None:
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    path = "/api/v1/namespaces/n/configmaps/kube-root-ca.crt"
    data = eventually(lambda: api.get(path, expect=0).json.get("data"), "the certificate")
    api.delete(path)
    assert eventually(lambda: api.get(path, expect=0).json.get("data"), "the certificate again") == data
    api.patch(path, {"data": {"ca.crt": ""}})
    eventually(lambda: api.get(path).json["data"] == data, "the certificate put right")


# --- tokens that secrets keep ---


def token_secret(name: str, account: str) -> Object:
    annotations = {"kubernetes.io/service-account.name": account}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TOKEN_SECRET,
        "metadata": {"name": name, "annotations": annotations},
    }


def filled(api: Api, name: str) -> Any:
    return eventually(
        lambda: (
            api.get(f"{SECRETS}/{name}").json
            if "token" in (api.get(f"{SECRETS}/{name}").json.get("data") or {})
            else None
        ),
        f"secret {name} filled",
    )


def test_a_secret_for_a_service_account_is_filled_and_its_token_is_good(api: Api) -> None:
    account = api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}).json
    api.post(SECRETS, token_secret("t", "a"))
    secret = filled(api, "t")
    data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert set(data) == {"token", "ca.crt", "namespace"}
    assert data["namespace"] == "default"
    assert data["ca.crt"] == api.get(f"{IN}/configmaps/kube-root-ca.crt").json["data"]["ca.crt"]
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == account["metadata"]["uid"]
    assert token_user(api, data["token"])["user"]["username"] == "system:serviceaccount:default:a"
    api.patch(f"{SECRETS}/t", {"data": {"ca.crt": None}})
    eventually(lambda: "ca.crt" in api.get(f"{SECRETS}/t").json["data"], "the certificate put back")
    assert api.get(f"{SECRETS}/t").json["data"]["token"] == secret["data"]["token"]


def test_a_token_secret_goes_with_its_account_and_its_token_with_it(api: Api) -> None:
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}})
    api.post(SECRETS, token_secret("t", "a"))
    api.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}})
    token = base64.b64decode(filled(api, "t")["data"]["token"]).decode()
    api.delete(f"{ACCOUNTS}/a")
    eventually(lambda: api.get(f"{SECRETS}/t", expect=0).code == 404, "the secret gone")
    assert not token_user(api, token).get("authenticated")
    assert api.get(f"{SECRETS}/other").code == 200


def test_a_token_secret_of_no_account_or_of_an_earlier_one_goes(api: Api) -> None:
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}})
    earlier = token_secret("earlier", "a")
    earlier["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = "somebody-else"
    for body in (token_secret("nobody", "nobody"), earlier):
        api.post(SECRETS, body)
    for name in ("nobody", "earlier"):
        eventually(
            partial(lambda name: api.get(f"{SECRETS}/{name}", expect=0).code == 404, name), f"secret {name} gone"
        )


# --- certificate signing requests ---


def pem_request() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e2e-example")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


@pytest.fixture
def request_(api: Api) -> Object:
    spec = {
        "request": pem_request(),
        "signerName": "example.com/e2e",
        "usages": ["digital signature", "client auth"],
        "expirationSeconds": 3600,
    }
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "e2e", "labels": {"csr": "e2e"}},
        "spec": spec,
    }
    return dict(api.post(REQUESTS, body).json)


def test_a_certificate_request_is_read_watched_patched_and_deleted(api: Api, request_: Object) -> None:
    assert names(api.get(f"{REQUESTS}?fieldSelector=spec.signerName%3Dexample.com/e2e").json) == ["e2e"]
    since = request_["metadata"]["resourceVersion"]
    with api.watch(f"{REQUESTS}?watch=1&labelSelector=csr%3De2e&resourceVersion={since}") as events:
        api.patch(f"{REQUESTS}/e2e", {"metadata": {"annotations": {"patched": "true"}}}, MERGE)
        found = api.get(f"{REQUESTS}/e2e").json
        found["metadata"]["annotations"]["updated"] = "true"
        api.put(f"{REQUESTS}/e2e", found)
        for event, annotation in zip(events.take(2), ("patched", "updated"), strict=True):
            assert (event.type, event.object["metadata"]["annotations"][annotation]) == ("MODIFIED", "true")
        api.delete(f"{REQUESTS}/e2e")
        assert events.next().type == "DELETED"
    api.get(f"{REQUESTS}/e2e", expect=404)
    assert api.delete(f"{REQUESTS}?labelSelector=csr%3De2e").json["items"] == []


def test_conditions_of_a_certificate_request_are_stamped_where_they_say_no_time(api: Api, request_: Object) -> None:
    approved = {"type": "Approved", "status": "True", "reason": "E2E", "message": "fine"}
    request_["status"] = {"conditions": [approved]}
    (stamped,) = api.put(f"{REQUESTS}/e2e/approval", request_).json["status"]["conditions"]
    assert stamped["lastUpdateTime"] == stamped["lastTransitionTime"]
    assert stamped["lastUpdateTime"].endswith("Z")
    patch = {
        "status": {
            "conditions": [stamped, {"type": "Failed", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z"}]
        }
    }
    first, second = api.patch(f"{REQUESTS}/e2e/status", patch, MERGE).json["status"]["conditions"]
    assert first == stamped
    assert second["lastUpdateTime"] == "2026-01-02T03:04:05Z"
    assert second["lastTransitionTime"] >= stamped["lastTransitionTime"]
    # An update of the condition without times sets lastUpdateTime and keeps lastTransitionTime.
    again = {"status": {"conditions": [stamped, {"type": "Failed", "status": "True", "reason": "Again"}]}}
    _, third = api.patch(f"{REQUESTS}/e2e/status", again, MERGE).json["status"]["conditions"]
    assert third["lastTransitionTime"] == second["lastTransitionTime"]
    assert third["lastUpdateTime"] > second["lastUpdateTime"]


# --- events ---


def event(name: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "regarding": {"namespace": "default"},
        "related": {"namespace": "default"},
        "note": f"this is {name}",
        "eventTime": "2026-01-02T03:04:05.123456Z",
        "action": "Do",
        "reason": "Test",
        "type": "Normal",
        "reportingController": "test-controller",
        "reportingInstance": "test-node",
    }


def test_an_event_lives_with_its_series_and_microseconds(api: Api) -> None:
    made = api.post(NEW_EVENTS, event("event-test", labels={"testevent-constant": "true"})).json
    assert made["eventTime"] == "2026-01-02T03:04:05.123456Z"
    assert names(api.get("/apis/events.k8s.io/v1/events?labelSelector=testevent-constant%3Dtrue").json) == [
        "event-test"
    ]
    selector = "reportingController%3Dtest-controller,reason%3DTest"
    assert names(api.get(f"{NEW_EVENTS}?fieldSelector={selector}").json) == ["event-test"]
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000007Z"}
    assert api.patch(f"{NEW_EVENTS}/event-test", {"series": series}, STRATEGIC).json["series"] == series
    found = api.get(f"{NEW_EVENTS}/event-test").json
    found["series"] = {"count": 100, "lastObservedTime": "2026-01-02T03:06:05.000000Z"}
    assert api.put(f"{NEW_EVENTS}/event-test", found).json["series"]["count"] == 100
    old = api.get(f"{EVENTS}/event-test").json
    assert (old["apiVersion"], old["message"], old["series"]["count"]) == ("v1", "this is event-test", 100)
    api.delete(f"{NEW_EVENTS}/event-test")
    assert api.get("/apis/events.k8s.io/v1/events?labelSelector=testevent-constant%3Dtrue").json["items"] == []


def test_events_are_deleted_with_their_collection(api: Api) -> None:
    for number in range(3):
        api.post(NEW_EVENTS, event(f"test-event-{number}", labels={"testevent-set": "true"}))
    selector = "labelSelector=testevent-set%3Dtrue"
    assert len(api.get(f"{NEW_EVENTS}?{selector}").json["items"]) == 3
    deleted = api.delete(f"{NEW_EVENTS}?{selector}").json
    assert (deleted["kind"], len(deleted["items"])) == ("EventList", 3)
    assert api.get(f"{NEW_EVENTS}?{selector}").json["items"] == []


def test_core_events_are_managed_and_deleted_with_their_collection(api: Api) -> None:
    for number in range(3):
        api.post(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "message": f"event {number}",
                "reason": "Test",
                "type": "Normal",
                "metadata": {"name": f"core-{number}", "labels": {"core": "true"}},
                "count": 1,
                "involvedObject": {"namespace": "default"},
                "source": {"component": "test"},
            },
        )
    assert len(api.get("/api/v1/events?labelSelector=core%3Dtrue").json["items"]) == 3
    patched = api.patch(f"{EVENTS}/core-0", {"message": "This is a test event - patched"}, STRATEGIC).json
    assert patched["message"] == "This is a test event - patched"
    assert api.get(f"{EVENTS}/core-0").json == patched
    updated = api.put(
        f"{EVENTS}/core-0", {**patched, "series": {"count": 100, "lastObservedTime": "2026-01-01T00:00:00.000001Z"}}
    ).json
    assert api.get(f"{EVENTS}/core-0").json == updated and updated["series"]["count"] == 100
    api.delete(f"{EVENTS}/core-0")
    assert names(api.get(f"{EVENTS}?labelSelector=core%3Dtrue").json) == ["core-1", "core-2"]
    api.delete(f"{EVENTS}?labelSelector=core%3Dtrue")
    assert api.get(f"{EVENTS}?labelSelector=core%3Dtrue").json["items"] == []
