"""One call of an admission webhook: question in, answer out, whatever the webhook does.

`configured.questions` calls `ask` outside of a snapshot. Order: dry runs are refused to webhooks with side effects; the
review is sent through the egress guard; its response is checked; a denial, or the patch of a mutating webhook, is the
answer. Invariant: a call that fails is an answer too, by the webhook's failurePolicy, and each answer is counted once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from atoll.machinery.apiserver.admission.configured.questions import Answer, Question
from atoll.machinery.apiserver.admission.webhooks import metrics, review
from atoll.machinery.apiserver.admission.webhooks.failures import CallFailed, denial, dry_run_unsupported
from atoll.machinery.apiserver.admission.webhooks.metrics import WebhookMetrics
from atoll.machinery.apiserver.admission.webhooks.patches import patched
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.egress import Egress, EgressError, Outbound
from atoll.machinery.egress.breakers import EAGER
from atoll.machinery.kinds.binary import decoded
from atoll.machinery.meta.objects import LARGE_BYTES, Object, encode_json
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.uids import new_uid

DEFAULT_TIMEOUT_S, _HTTPS = 10, 443
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
#: Bounds of the audit annotations of one answer; upstream bounds none.
MAX_AUDITED, MAX_AUDITED_BYTES = 64, 10 * 1024
MAX_WARNINGS = 64
_MUTATION, _FAILED_OPEN = "mutation.webhook.admission.k8s.io", "failed-open"
_VALIDATION = "validating.webhook.admission.k8s.io"


class WebhookCaller:
    """The calls of one process."""

    def __init__(self, egress: Egress, observed: WebhookMetrics) -> None:
        self._egress, self._metrics = egress, observed

    async def ask(self, question: Question) -> Answer:
        """Put a question to its webhook. Raises nothing but for cancellation."""
        began = time.monotonic()
        code, rejected = 200, False
        try:
            answer = await self._answer(question)
            if answer.denial is not None:
                code, rejected = answer.denial.code, True
                self._metrics.rejected(question, metrics.NO_ERROR, code)
        except CallFailed as error:
            code, rejected = error.code, question.webhook.stored.get("failurePolicy") != "Ignore"
            answer = self._failed(question, error, rejected=rejected)
        except ApiError as error:
            code, rejected = 0, True
            self._metrics.rejected(question, metrics.INTERNAL, code)
            answer = Answer(denial=error, audit=_mutation(question, mutated=False))
        self._metrics.observe(question, code, time.monotonic() - began, rejected=rejected)
        return answer

    def _failed(self, question: Question, error: CallFailed, *, rejected: bool) -> Answer:
        """Apply the failure policy."""
        webhook, audit = question.webhook, _mutation(question, mutated=False)
        if rejected:
            self._metrics.rejected(question, metrics.CALLING, error.code)
            return Answer(denial=error.rejection(webhook.name), audit=audit)
        self._metrics.failed_open(question)
        prefix = _MUTATION if webhook.mutating else _VALIDATION
        audit[f"{_FAILED_OPEN}.{prefix}/{_position(question)}"] = webhook.name
        return Answer(audit=audit)

    async def _answer(self, question: Question) -> Answer:
        """Return the webhook's own answer. Raises CallFailed, and ApiError for a patch that cannot be applied."""
        webhook = question.webhook
        if question.described.get("dryRun") and webhook.stored.get("sideEffects") not in _NO_SIDE_EFFECTS:
            raise dry_run_unsupported(webhook.name)
        version, uid = review.version_of(webhook.stored.get("admissionReviewVersions") or ()), new_uid()
        objects = question.objects
        received = await self._send(
            question, partial(review.encode_request, version, uid, question.described, objects.encoded)
        )
        response, patch = review.decode_response(version, uid, received, mutating=webhook.mutating)
        audit = _audited(webhook.name, response.audit_annotations or {})
        warnings = (response.warnings or [])[:MAX_WARNINGS]
        if not response.allowed:
            audit |= _mutation(question, mutated=False)
            return Answer(denial=denial(webhook.name, response.status), warnings=warnings, audit=audit)
        obj = await _apply(question, patch, len(objects.encoded)) if patch else None
        audit |= _mutation(question, mutated=obj is not None)
        return Answer(obj=obj, warnings=warnings, audit=audit)

    async def _send(self, question: Question, body: Callable[[], Sequence[bytes]]) -> bytes:
        """Send what `body` returns, which is made once the call has a slot; return the body of the answer.

        Raises CallFailed.
        """
        stored = question.webhook.stored
        client, timeout_s = stored.get("clientConfig") or {}, stored.get("timeoutSeconds") or DEFAULT_TIMEOUT_S
        call = Outbound(
            purpose="admission",
            url=client.get("url") or _service_url(client.get("service") or {}),
            body=body,
            ca_pem=decoded(client.get("caBundle") or "") or b"",
            timeout_s=float(timeout_s),
            query=f"timeout={timeout_s}s",
            # An export's webhook is shared by its consumers: none of them takes the slots of the others.
            tenant=question.cluster,
            breaking=EAGER,
        )
        if not client.get("url"):
            name = (client.get("service") or {}).get("name", "")
            raise CallFailed(f'failed to call webhook: {call.label}: service "{name}" not found')
        try:
            return (await self._egress.send(call)).body
        except EgressError as error:
            raise CallFailed.of_egress(error) from error


async def _apply(question: Question, patch: bytes, size: int) -> Object | None:
    work = partial(patched, question.webhook.name, question.objects.obj, patch)
    return await in_slices(work) if max(size, len(patch)) > LARGE_BYTES else work()


def _service_url(service: Object) -> str:
    host = f"{service.get('name', '')}.{service.get('namespace', '')}.svc"
    return f"https://{host}:{service.get('port') or _HTTPS}{service.get('path') or ''}"


def _position(question: Question) -> str:
    return f"round_{question.reinvocation}_index_{question.place}"


def _mutation(question: Question, *, mutated: bool) -> dict[str, str]:
    """Return the audit annotation of a mutating webhook: whether it changed the object."""
    webhook = question.webhook
    if not webhook.mutating:
        return {}
    value = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": mutated}
    return {f"{_MUTATION}/{_position(question)}": encode_json(value).decode()}


def _audited(name: str, annotations: dict[str, str]) -> dict[str, str]:
    """Return the webhook's own audit annotations, below its name."""
    found = list(annotations.items())[:MAX_AUDITED]
    return {f"{name}/{key}": value[:MAX_AUDITED_BYTES] for key, value in found}
