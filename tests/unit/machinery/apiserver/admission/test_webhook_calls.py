"""Calls of admission webhooks over real TLS: each answer, good or bad, becomes the answer to a question."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.admission.configured.matching import CREATE, Request
from atoll.machinery.apiserver.admission.configured.questions import Answer, Objects, Question, Webhook, WebhookEntry
from atoll.machinery.apiserver.admission.webhooks.caller import WebhookCaller
from atoll.machinery.apiserver.admission.webhooks.metrics import MAX_NAMES, WebhookMetrics
from atoll.machinery.egress import Egress, policy
from atoll.machinery.egress.breakers import FAILURES
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.meta.objects import Object, encode_json
from harness.servers.stand_ins.webhook import HANG_UP, Odd, WebhookServer

NAME = "w.example.com"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b", "uid": "u"}, "data": {}}
Respond = Callable[[Object], Any]


class Caller:
    """A caller, its registry, and a server whose responses a test chooses."""

    def __init__(self, server: WebhookServer, egress: Egress) -> None:
        self.server, self.registry = server, CollectorRegistry()
        self._caller = WebhookCaller(egress, WebhookMetrics(self.registry))

    def responds(self, **fields: Any) -> None:
        """Let the server respond to each review with these fields; `uid` and `allowed` have right values by default."""

        def answer(body: Object) -> Object:
            response = {"uid": body["request"]["uid"], "allowed": True, **fields}
            return {"apiVersion": body["apiVersion"], "kind": "AdmissionReview", "response": response}

        self.server.answer = answer

    def patches(self, *operations: Object, **fields: Any) -> None:
        patch = base64.b64encode(json.dumps(operations).encode()).decode()
        self.responds(patch=patch, patchType="JSONPatch", **fields)

    async def ask(
        self, obj: Object | None = MAP, *, mutating: bool = True, dry_run: bool = False, **stored: Any
    ) -> Answer:
        client = {"url": self.server.url, "caBundle": self.server.ca_bundle}
        fields = {"clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None"}
        webhook = Webhook(
            entry=WebhookEntry.of({"name": NAME, **fields, **stored}),
            mutating=mutating,
            configuration="conf",
            uid="u",
            generation=1,
            index=0,
        )
        question = Question(
            webhook=webhook,
            request=Request(operation=CREATE, kind=CONFIGMAPS),
            kind=CONFIGMAPS,
            described={"operation": CREATE, "dryRun": dry_run},
            objects=Objects(obj, None),
            place=2,
        )
        return await self._caller.ask(question)

    def counted(self, metric: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"apiserver_admission_webhook_{metric}", labels)
        return found or 0.0


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with WebhookServer(lambda body: {}) as server:
        yield server


@pytest.fixture
async def caller(server: WebhookServer) -> AsyncIterator[Caller]:
    egress = Egress(policy("127.0.0.0/8"))
    yield Caller(server, egress)
    await egress.close()


def denied(answer: Answer) -> tuple[int, str, str]:
    assert answer.denial is not None
    return answer.denial.code, answer.denial.reason, answer.denial.message


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_review_has_the_request_and_the_objects(caller: Caller, version: str) -> None:
    caller.responds()
    answer = await caller.ask(admissionReviewVersions=["v9", version], timeoutSeconds=7)
    (call,) = caller.server.calls
    request = call.body["request"]
    assert answer.denial is None
    assert (call.body["kind"], call.body["apiVersion"]) == ("AdmissionReview", f"admission.k8s.io/{version}")
    assert (request["object"], request["oldObject"], request["operation"]) == (MAP, None, CREATE)
    assert request["uid"]
    assert call.path.endswith("?timeout=7s")


async def test_a_patch_makes_another_object(caller: Caller) -> None:
    caller.patches(
        {"op": "add", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}
    )
    answer = await caller.ask()
    assert answer.obj is not None
    assert (answer.obj["data"], answer.obj["metadata"]["labels"]) == ({"a": "1"}, {"x": "y"})
    assert MAP["data"] == {}
    mutation = {"configuration": "conf", "webhook": NAME, "mutated": True}
    assert answer.audit == {"mutation.webhook.admission.k8s.io/round_0_index_2": encode_json(mutation).decode()}


@pytest.mark.parametrize("operations", [[], [{"op": "test", "path": "/data", "value": {}}]])
async def test_a_patch_that_changes_nothing_leaves_the_object(caller: Caller, operations: list[Object]) -> None:
    caller.patches(*operations)
    assert (await caller.ask()).obj is None


async def test_warnings_and_audit_annotations_are_passed_on_also_with_a_denial(caller: Caller) -> None:
    fields: Object = {"warnings": ["careful"], "auditAnnotations": {"key": "value"}}
    caller.responds(**fields)
    admitted = await caller.ask(mutating=False)
    caller.responds(allowed=False, **fields)
    refused = await caller.ask(mutating=False)
    for answer in (admitted, refused):
        assert (list(answer.warnings), answer.audit) == (["careful"], {f"{NAME}/key": "value"})
    assert admitted.denial is None
    assert refused.denial is not None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, (400, "", " without explanation")),
        ({"code": 200, "status": "Success"}, (400, "", " without explanation")),
        ({"reason": "Forbidden"}, (400, "Forbidden", ": Forbidden")),
        ({"code": 403, "message": "no", "reason": "Forbidden"}, (403, "Forbidden", ": no")),
    ],
)
async def test_a_denial_has_the_code_and_the_words_of_the_webhook(
    caller: Caller, status: Object | None, expected: tuple[int, str, str]
) -> None:
    caller.responds(allowed=False, status=status)
    code, reason, text = expected
    answer = await caller.ask(failurePolicy="Ignore")
    assert denied(answer) == (code, reason, f'admission webhook "{NAME}" denied the request{text}')
    labels = {"name": NAME, "type": "admit", "operation": CREATE}
    assert caller.counted("rejection_count_total", **labels, error_type="no_error", rejection_code=str(code)) == 1
    assert caller.counted("request_total", **labels, code=str(code), rejected="true") == 1


#: How a bad answer is made, and a part of the text after `failed calling webhook`.
BAD: dict[str, tuple[Respond | Odd, str]] = {
    "uid": (lambda body: _review(body, uid="x"), 'received invalid webhook response: expected response.uid "'),
    "kind": (
        lambda body: {**_review(body), "kind": "Pod"},
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind=Pod",
    ),
    "absent": (lambda body: {**_review(body), "response": None}, "webhook response was absent"),
    "base64": (lambda body: _review(body, patch="%%", patchType="JSONPatch"), "response.patch is no base64"),
    "no type": (lambda body: _review(body, patch="W10="), "webhook returned response.patch but not response.patchType"),
    "no patch": (lambda body: _review(body, patchType="JSONPatch"), "response.patchType but not response.patch"),
    "other type": (lambda body: _review(body, patch="W10=", patchType="Merge"), 'unsupported patch type "Merge"'),
    "no JSON": (lambda body: b"{", "the response is no AdmissionReview"),
    "types": (lambda body: _review(body, allowed="yes"), "the response is no AdmissionReview"),
    "status": (lambda body: _review(body, allowed=False, status={"code": "x"}), "the response is no AdmissionReview"),
    "hang up": (lambda body: HANG_UP, "failed to call webhook: Post"),
    "large": (lambda body: b" " * (8 << 20) + b"{}", "failed to call webhook: Post"),
    "redirect": (Odd(302, {"Location": "https://127.0.0.1/"}), "the server responded with the status code 302"),
    "not found": (Odd(404), "the server could not find the requested resource"),
    "error": (Odd(500, {}, b"oops"), 'an error on the server ("oops") has prevented the request from succeeding'),
    "half": (Odd(200, {"Transfer-Encoding": "chunked"}, b'{"kind":'), "failed to call webhook: Post"),
}


def _review(body: Object, **fields: Any) -> Object:
    response = {"uid": body["request"]["uid"], "allowed": True, **fields}
    return {"apiVersion": body["apiVersion"], "kind": "AdmissionReview", "response": response}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_answer_is_left_to_the_failure_policy(caller: Caller, case: str) -> None:
    respond, text = BAD[case]
    caller.server.answer = respond if callable(respond) else lambda body: respond
    code, reason, message = denied(await caller.ask(failurePolicy="Fail"))
    assert (code, reason) == (500, "InternalError")
    assert message.startswith(f'Internal error occurred: failed calling webhook "{NAME}": ')
    assert text in message
    ignored = await caller.ask(failurePolicy="Ignore")
    assert (ignored.denial, ignored.obj) == (None, None)
    assert ignored.audit["failed-open.mutation.webhook.admission.k8s.io/round_0_index_2"] == NAME
    assert caller.counted("fail_open_count_total", name=NAME, type="admit") == 1


async def test_a_webhook_that_hangs_is_given_up_in_upstreams_words(caller: Caller) -> None:
    released = threading.Event()

    def hang(body: Object) -> Odd:
        released.wait(60)
        return HANG_UP

    caller.server.answer = hang
    text = f'failed to call webhook: Post "{caller.server.url}?timeout=1s": context deadline exceeded'
    try:
        found = await asyncio.gather(*(caller.ask(timeoutSeconds=1) for _ in range(FAILURES)))
        # The circuit is open now, and says the same.
        found.append(await caller.ask(timeoutSeconds=1))
    finally:
        released.set()
    expected = f'Internal error occurred: failed calling webhook "{NAME}": {text}'
    assert [denied(answer)[2] for answer in found] == [expected] * (FAILURES + 1)
    assert len(caller.server.calls) == FAILURES


async def test_a_service_is_not_found(caller: Caller) -> None:
    client = {"service": {"name": "s", "namespace": "n", "path": "/p", "port": 443}}
    text = 'failed to call webhook: Post "https://s.n.svc:443/p?timeout=10s": service "s" not found'
    answer = await caller.ask(clientConfig=client)
    assert denied(answer)[2] == f'Internal error occurred: failed calling webhook "{NAME}": {text}'


@pytest.mark.parametrize("side_effects", ["Some", "Unknown"])
async def test_a_dry_run_never_reaches_a_webhook_with_side_effects(caller: Caller, side_effects: str) -> None:
    caller.responds()
    answer = await caller.ask(dry_run=True, sideEffects=side_effects, failurePolicy="Ignore")
    assert denied(answer) == (400, "BadRequest", f'admission webhook "{NAME}" does not support dry run')
    assert caller.server.calls == []
    assert (await caller.ask(dry_run=True, sideEffects="NoneOnDryRun")).denial is None


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ({"op": "replace", "path": "/metadata/name", "value": "x"}, "metadata.name"),
        ({"op": "replace", "path": "/metadata/namespace", "value": "x"}, "metadata.namespace"),
        ({"op": "remove", "path": "/metadata/uid"}, "metadata.uid"),
        ({"op": "replace", "path": "/kind", "value": "Secret"}, "kind"),
        ({"op": "replace", "path": "/apiVersion", "value": "v2"}, "apiVersion"),
        (
            {"op": "add", "path": "/metadata/labels", "value": {"claimed.internal.apis.kcp.io/x": "y"}},
            "metadata.labels[",
        ),
        ({"op": "add", "path": "/metadata/annotations", "value": {"kcp.io/cluster": "y"}}, "metadata.annotations["),
        ({"op": "remove", "path": "/metadata"}, "metadata"),
        ({"op": "replace", "path": "", "value": []}, "not an object"),
    ],
)
async def test_a_patch_of_what_is_not_a_webhooks_rejects_whatever_the_policy(
    caller: Caller, operation: Object, path: str
) -> None:
    caller.patches(operation)
    code, _, message = denied(await caller.ask(failurePolicy="Ignore"))
    assert code == 500
    assert path in message
    labels = {"name": NAME, "type": "admit", "operation": CREATE}
    internal = {"error_type": "apiserver_internal_error", "rejection_code": "0"}
    assert caller.counted("rejection_count_total", **labels, **internal) == 1


async def test_patches_are_bounded(caller: Caller) -> None:
    caller.patches(*[{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001)
    assert "maximum operations" in denied(await caller.ask())[2]
    caller.patches({"op": "add", "path": "/data/a", "value": "x" * (3 << 20)})
    assert "larger than" in denied(await caller.ask())[2]


async def test_a_request_without_an_object_cannot_be_patched(caller: Caller) -> None:
    caller.patches({"op": "add", "path": "/data", "value": {}})
    text = f'admission webhook "{NAME}" attempted to modify the object, which is not supported for this operation'
    assert denied(await caller.ask(None))[2] == f"Internal error occurred: {text}"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"patch": "W10="}, "may not return response.patch"),
        ({"patchType": "JSONPatch"}, "may not return response.patchType"),
    ],
)
async def test_a_validating_webhook_may_not_patch(caller: Caller, fields: Object, text: str) -> None:
    caller.responds(**fields)
    assert text in denied(await caller.ask(mutating=False))[2]


async def test_the_names_of_metrics_are_bounded() -> None:
    registry = CollectorRegistry()
    observed = WebhookMetrics(registry)
    for number in range(MAX_NAMES + 50):
        webhook = Webhook(
            entry=WebhookEntry.of({"name": f"w{number}.example.com"}),
            mutating=False,
            configuration="conf",
            uid="u",
            generation=1,
            index=0,
        )
        request = Request(operation=CREATE, kind=CONFIGMAPS)
        question = Question(
            webhook=webhook, request=request, kind=CONFIGMAPS, described={}, objects=Objects(None, None)
        )
        observed.observe(question, 200, 0.1, rejected=False)
    labels = {"name": "other", "type": "validating", "operation": CREATE, "code": "200", "rejected": "false"}
    assert registry.get_sample_value("apiserver_admission_webhook_request_total", labels) == 50
