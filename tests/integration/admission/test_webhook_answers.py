"""What webhooks answer and should not: a clear error by failure policy, nothing stored, and nobody else waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import Api, configmap
from harness.clients.loop_probe import LoopProbe
from harness.servers.shard_process import ShardProcess
from harness.servers.stand_ins.admission import (
    MAPS,
    AdmissionServer,
    Answering,
    allow,
    answer,
    deny,
    patch,
    patched,
    register,
)
from harness.servers.stand_ins.webhook import HANG_UP, Odd

Object = dict[str, Any]
#: How long nothing of the server may hold its event loop.
PROMISED_S = 0.1
LARGE = {"op": "add", "path": "/data/large", "value": "x" * (3 << 20)}
INVALID = "received invalid webhook response: "

#: Just below eight MiB of JSON that takes 150 MB, decoded.
LISTS = b"[%b]" % b",".join([b"[]"] * 1_900_000)
#: As many audit annotations as fit.
NAMES = b"{%b}" % b",".join(b'"%07x":""' % number for number in range(600_000))


def with_json(field: str, value: bytes) -> Answering:
    """A webhook that allows everything, with a large value in its response."""

    def answering(review: Object) -> bytes:
        return json.dumps(answer(review, allowed=True, **{field: "@"})).encode().replace(b'"@"', value)

    return answering


def nested(depth: int) -> Object:
    value: Object = {}
    for _ in range(depth):
        value = {"a": value}
    return value


#: Answers that are a failure of the call, and what the error says after the name of the webhook.
FAILURES: dict[str, tuple[Any, str]] = {
    "another uid": (lambda review: answer(review, uid="other", allowed=True), f"{INVALID}expected response.uid"),
    "another kind": (
        lambda review: {**allow(review), "kind": "Other"},
        f"{INVALID}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
        "got admission.k8s.io/v1, Kind=Other",
    ),
    "another version": (
        lambda review: {**allow(review), "apiVersion": "admission.k8s.io/v1beta1"},
        f"{INVALID}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
        "got admission.k8s.io/v1beta1, Kind=AdmissionReview",
    ),
    "no response": (lambda review: {**allow(review), "response": None}, f"{INVALID}webhook response was absent"),
    "a patch that is no base64": (
        lambda review: answer(review, allowed=True, patch="!", patchType="JSONPatch"),
        "failed to call webhook: response.patch is no base64",
    ),
    "a patch without its type": (
        lambda review: {**patched(review), "response": {**patched(review)["response"], "patchType": None}},
        f"{INVALID}webhook returned response.patch but not response.patchType",
    ),
    "another type of patch": (
        lambda review: answer(review, allowed=True, patch="W10=", patchType="Merge"),
        'unsupported patch type "Merge"',
    ),
    "no JSON": (lambda review: b"<html>", "failed to call webhook: the response is no AdmissionReview"),
    "JSON of another shape": (
        lambda review: b"[[[[1]]]]",
        "failed to call webhook: the response is no AdmissionReview",
    ),
    "deep JSON": (lambda review: b"[" * 200_000, "failed to call webhook: "),
    "nine MiB": (lambda review: b" " * (9 << 20), "failed to call webhook: "),
    "causes that are words": (
        lambda review: answer(review, allowed=False, status={"details": {"causes": ["x"]}}),
        "failed to call webhook: the response is no AdmissionReview",
    ),
    "a delay that is a text": (
        lambda review: answer(review, allowed=False, status={"code": 429, "details": {"retryAfterSeconds": "1"}}),
        "failed to call webhook: the response is no AdmissionReview",
    ),
    "a status of millions of lists": (with_json("status", b'{"details":%b}' % LISTS), f"{INVALID}it has more than"),
    "millions of audit annotations": (with_json("auditAnnotations", NAMES), f"{INVALID}it has more than"),
    "half an answer": (lambda review: Odd(200, {"Content-Length": "100"}, b'{"kind"'), "unexpected EOF"),
    "no answer": (lambda review: HANG_UP, "EOF"),
    "an error": (
        lambda review: Odd(500, {}, b"out of order"),
        'failed to call webhook: an error on the server ("out of order") has prevented the request from succeeding',
    ),
    "not found": (lambda review: Odd(404), "failed to call webhook: the server could not find the requested resource"),
    "a redirect": (
        lambda review: Odd(302, {"Location": "https://169.254.169.254/"}),
        "failed to call webhook: the server responded with the status code 302",
    ),
}

#: Patches that reject a request whatever the failure policy is, and what the error says.
REFUSED: dict[str, tuple[list[Object], str]] = {
    "10,001 operations": ([{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001, "10000"),
    "an object of three MiB": ([LARGE], "larger"),
    "a field that is not there": ([{"op": "remove", "path": "/data/none"}], "none"),
    "a test that fails": ([{"op": "test", "path": "/kind", "value": "Secret"}], "test"),
    "another name": ([{"op": "replace", "path": "/metadata/name", "value": "b"}], "metadata.name"),
    "another namespace": ([{"op": "replace", "path": "/metadata/namespace", "value": "b"}], "metadata.namespace"),
    "another uid": ([{"op": "add", "path": "/metadata/uid", "value": "b"}], "metadata.uid"),
    "another kind": ([{"op": "replace", "path": "/kind", "value": "Secret"}], "kind"),
    "another cluster": (
        [{"op": "replace", "path": "/metadata/annotations/kcp.io~1cluster", "value": "root"}],
        "metadata.annotations[kcp.io/cluster]",
    ),
    "a label of the system": (
        [{"op": "add", "path": "/metadata/labels", "value": {"claimed.internal.apis.kcp.io/x": "y"}}],
        "metadata.labels[claimed.internal.apis.kcp.io/x]",
    ),
    "a patch of a million lists": ([{"op": "add", "path": "/data", "value": [[]] * 1_000_000}], "larger"),
    "an object of 200 levels": ([{"op": "add", "path": "/data/a", "value": nested(200)}], "deeper than 192 levels"),
    "two depths in one another": (
        [
            {"op": "add", "path": "/data/a", "value": nested(900)},
            {"op": "add", "path": f"/data/a{'/a' * 900}", "value": nested(900)},
        ],
        "deeper than 192 levels",
    ),
    "no object at all": ([{"op": "replace", "path": "", "value": 1}], "not an object"),
}


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    with AdmissionServer({"/odd": allow}) as running:
        yield running


def install(api: Api, server: AdmissionServer, kind: str = "Mutating") -> None:
    """Call the webhook for objects labelled with a failure policy, by that policy."""
    hooks = []
    for policy in ("Fail", "Ignore"):
        selector = {"matchLabels": {"policy": policy}}
        webhook = server.webhook("/odd", failurePolicy=policy, objectSelector=selector, timeoutSeconds=2)
        hooks.append({**webhook, "name": f"{policy.lower()}.example.com"})
    register(api, server, kind, *hooks)


@pytest.mark.long
def test_an_answer_that_is_none_fails_or_is_ignored(api: Api, shard: ShardProcess, server: AdmissionServer) -> None:
    install(api, server)
    with LoopProbe(api, shard.pid) as probe:
        for index, (case, (answering, text)) in enumerate(FAILURES.items()):
            server.webhooks["/odd"] = answering
            failed = api.post(MAPS, configmap(f"fail-{index}", labels={"policy": "Fail"}), expect=500)
            lead = 'Internal error occurred: failed calling webhook "fail.example.com": '
            assert failed.message.startswith(lead), case
            assert text in failed.message, (case, failed.message)
            assert failed.json["reason"] == "InternalError", case
            api.get(f"{MAPS}/fail-{index}", expect=404)
            api.post(MAPS, configmap(f"ignore-{index}", labels={"policy": "Ignore"}))
    assert probe.worst_s < 4 * PROMISED_S


def test_a_denial_has_a_code_that_http_has(api: Api, server: AdmissionServer) -> None:
    install(api, server)
    for code, expected in ((0, 400), (302, 400), (451, 451), (99_999, 400)):
        server.webhooks["/odd"] = deny("no", code=code)
        denied = api.post(MAPS, configmap("a", labels={"policy": "Ignore"}), expect=expected)
        assert denied.json["code"] == expected
    server.webhooks["/odd"] = deny("no", code=429, details={"retryAfterSeconds": -1})
    assert not api.post(MAPS, configmap("a", labels={"policy": "Fail"}), expect=429).header("retry-after")


def test_a_patch_that_may_not_be_rejects_under_either_policy(
    api: Api, shard: ShardProcess, server: AdmissionServer
) -> None:
    install(api, server)
    with LoopProbe(api, shard.pid) as probe:
        for index, (case, (operations, text)) in enumerate(REFUSED.items()):
            server.webhooks["/odd"] = patch(*operations)
            for policy in ("Fail", "Ignore"):
                failed = api.post(MAPS, configmap(f"a-{index}", labels={"policy": policy}), expect=500)
                assert failed.message.startswith("Internal error occurred: "), case
                assert text in failed.message, (case, failed.message)
                api.get(f"{MAPS}/a-{index}", expect=404)
    assert probe.worst_s < 4 * PROMISED_S


@pytest.mark.long
def test_a_large_patch_that_may_be_does_not_hold_up_others(
    api: Api, shard: ShardProcess, server: AdmissionServer
) -> None:
    install(api, server)
    words = {f"key-{index}": "x" * 200 for index in range(4000)}
    operations = [{"op": "add", "path": f"/data/{key}", "value": value} for key, value in words.items()]
    server.webhooks["/odd"] = patch(*operations)
    with LoopProbe(api, shard.pid) as probe:
        for index in range(5):
            stored = api.post(MAPS, configmap(f"a-{index}", labels={"policy": "Fail"})).json
            assert stored["data"] == words
    assert probe.worst_s < 4 * PROMISED_S


def test_a_validating_webhook_that_patches_fails(api: Api, server: AdmissionServer) -> None:
    install(api, server, "Validating")
    server.webhooks["/odd"] = patch({"op": "add", "path": "/data/a", "value": "b"})
    failed = api.post(MAPS, configmap("a", labels={"policy": "Fail"}), expect=500)
    assert failed.message.endswith(f"{INVALID}validating webhook may not return response.patch")
    assert api.post(MAPS, configmap("b", labels={"policy": "Ignore"})).json["data"] == {}


@pytest.mark.long
def test_a_server_that_hangs_is_given_up_after_its_timeout(api: Api, server: AdmissionServer) -> None:
    install(api, server)
    over = threading.Event()
    server.webhooks["/odd"] = lambda review: allow(review) if over.wait(60) else Odd(500)
    failed = api.post(MAPS, configmap("a", labels={"policy": "Fail"}), expect=500)
    lead = 'Internal error occurred: failed calling webhook "fail.example.com": failed to call webhook: '
    assert failed.message == f'{lead}Post "{server.base}/odd?timeout=2s": context deadline exceeded'
    api.get(f"{MAPS}/a", expect=404)
    api.post(MAPS, configmap("b", labels={"policy": "Ignore"}))
    over.set()


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        ({"message": "no"}, 400, ": no"),
        ({"message": "no", "reason": "Forbidden", "code": 403}, 403, ": no"),
        ({"reason": "because"}, 400, ": because"),
        ({"code": 200}, 400, " without explanation"),
        ({}, 400, " without explanation"),
        ({"message": "busy", "code": 429, "details": {"retryAfterSeconds": 7}}, 429, ": busy"),
    ],
)
def test_a_denial_has_the_code_and_the_words_of_the_webhook(
    api: Api, server: AdmissionServer, status: Object, code: int, text: str
) -> None:
    install(api, server, "Validating")
    server.webhooks["/odd"] = lambda review: answer(review, allowed=False, status=status)
    denied = api.post(MAPS, configmap("a", labels={"policy": "Ignore"}), expect=code)
    assert denied.message == f'admission webhook "ignore.example.com" denied the request{text}'
    assert denied.json.get("reason", "") == status.get("reason", "")
    api.get(f"{MAPS}/a", expect=404)


def test_a_service_that_nobody_resolves_fails_in_upstreams_words(api: Api, server: AdmissionServer) -> None:
    webhook = server.webhook("/odd", objectSelector={"matchLabels": {"of": "service"}})
    webhook["clientConfig"] = {"service": {"namespace": "default", "name": "hook", "path": "/x", "port": 8443}}
    register(api, server, "Validating", webhook)
    failed = api.post(MAPS, configmap("a", labels={"of": "service"}), expect=500)
    assert failed.message == (
        'Internal error occurred: failed calling webhook "odd.example.com": failed to call webhook: '
        'Post "https://hook.default.svc:8443/x?timeout=10s": service "hook" not found'
    )


def test_warnings_reach_the_client_cut_and_bounded(api: Api, server: AdmissionServer) -> None:
    install(api, server, "Validating")
    server.webhooks["/odd"] = lambda review: answer(review, allowed=True, warnings=["careful", "a\nb", "x" * 10_000])
    warned = api.post(MAPS, configmap("a", labels={"policy": "Fail"}))
    assert warned.warnings[0] == "careful"
    assert len(warned.warnings) >= 2
    assert sum(map(len, warned.warnings)) < 5000
    server.webhooks["/odd"] = lambda review: answer(review, allowed=False, warnings=["also with a denial"])
    assert api.post(MAPS, configmap("b", labels={"policy": "Fail"}), expect=400).warnings == ["also with a denial"]
