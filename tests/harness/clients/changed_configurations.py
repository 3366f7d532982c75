"""Changes of what a provider configures, awaited at every connection of its consumers.

for change in CHANGES.values():
    counts_everywhere(change, provider, consumers)     # each an Api of its own, so a connection
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.clients.api import Api, Object, eventually
from harness.clients.exports import an_object, schema
from harness.clients.refusers import MARK, Refuser, ValidatingPolicy, ValidatingWebhook

CIRCLES = schema("circles")
#: A change is in force everywhere within a second; a busy machine takes longer.
DEADLINE_S = 60.0
#: The language of policies is loaded at their first use.
FIRST_S = 60.0


class Change(NamedTuple):
    """A kind of refuser, the plural of its object that is changed, and the change after which it refuses nothing."""

    refuser: Callable[..., Refuser]
    plural: str
    harmless: Callable[[Object], Object]


def _allowing(obj: Object) -> Object:
    return {"spec": {**obj["spec"], "validations": [{"expression": "true"}]}}


def _auditing(obj: Object) -> Object:
    return {"spec": {**obj["spec"], "validationActions": ["Audit"]}}


def _deaf(obj: Object) -> Object:
    rules = [{**each, "operations": ["DELETE"]} for each in obj["webhooks"][0]["rules"]]
    return {"webhooks": [{**obj["webhooks"][0], "rules": rules}]}


CHANGES = {
    "policy": Change(ValidatingPolicy, "validatingadmissionpolicies", _allowing),
    "binding": Change(ValidatingPolicy, "validatingadmissionpolicybindings", _auditing),
    "webhook": Change(ValidatingWebhook, "validatingwebhookconfigurations", _deaf),
}


def counts_everywhere(change: Change, provider: Api, consumers: Sequence[Api]) -> None:
    """Install, change there and back; each counts for every consumer in time, one looked at after the other."""
    refuser = change.refuser(resources=["circles"])

    def wait(timeout_s: float, *, refuses: bool) -> None:
        what = f"{change.plural}: {'refused' if refuses else 'accepted'} everywhere"
        for each in consumers:
            eventually(lambda: _is_refused(refuser, each) == refuses, what, timeout_s)  # noqa: B023

    with refuser.installed(provider):
        wait(FIRST_S, refuses=True)
        found = ((path, obj) for path, obj in refuser.objects().items() if path.endswith(f"/{change.plural}"))
        path, obj = next(found)
        for content, refuses in ((change.harmless(obj), False), (obj, True)):
            provider.patch(f"{path}/{refuser.name}", content)
            wait(DEADLINE_S, refuses=refuses)


def _is_refused(refuser: Refuser, consumer: Api) -> bool:
    path = "/apis/shapes.example.com/v1/namespaces/default/circles?dryRun=All"
    return refuser.refused(consumer.post(path, an_object(CIRCLES, MARK), expect=0))
