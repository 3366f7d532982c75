"""What refuses every write of the objects that are called `poison...`, in each kind of admission: what a user
configures, and a plug-in of the server's own.

refuser = REFUSERS["validating policy"]()
with refuser.installed(api):
    assert refuser.refused(api.post(path, body, expect=0))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.clients.api import Answer, Api, Object
from harness.clients.exports import cluster_of
from harness.servers.stand_ins.webhook import WebhookServer

GROUP = "/apis/admissionregistration.k8s.io/v1"
MARK = "poison"
_EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}
#: A Workspace, its objects and its deletion are the system's; a namespace is refused by its own name alone.
_UNMARKED = f'!request.name.startsWith("{MARK}")'


class Refuser:
    """One configuration that refuses. `rules` replace the rules for everything."""

    name = "refuser"
    #: What answers to a refused write say.
    text = "is refused"
    #: Whether it acts on deletions, and on requests that store nothing.
    deletions = unstored = True

    def __init__(self, **rules: Any) -> None:
        self._rules = {"operations": ["*"], **_EVERYTHING, **rules}

    def objects(self) -> dict[str, Object]:
        """The objects to create, by path."""
        raise NotImplementedError

    def refused(self, answer: Answer) -> bool:
        """Whether an answer is this refusal."""
        return answer.code >= 400 and self.text in answer.body.decode()

    @contextmanager
    def installed(self, api: Api) -> Iterator[None]:
        """Refuse in a workspace; what other tests installed there is left alone."""
        made = [(path, api.post(path, body).json["metadata"]["name"]) for path, body in self.objects().items()]
        try:
            yield
        finally:
            for path, name in reversed(made):
                api.delete(f"{path}/{name}")


class ValidatingPolicy(Refuser):
    """A ValidatingAdmissionPolicy with a binding."""

    def objects(self) -> dict[str, Object]:
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": self.name}}
        spec = {
            "matchConstraints": {"resourceRules": [self._rules]},
            "validations": [{"expression": _UNMARKED, "message": self.text}],
        }
        bound = {"policyName": self.name, "validationActions": ["Deny"]}
        return {
            f"{GROUP}/validatingadmissionpolicies": {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
            f"{GROUP}/validatingadmissionpolicybindings": {
                **head,
                "kind": "ValidatingAdmissionPolicyBinding",
                "spec": bound,
            },
        }


class MutatingPolicy(Refuser):
    """A MutatingAdmissionPolicy with a binding, whose mutation of a marked object has no value."""

    text = "no such key: is-refused"
    deletions = False

    def __init__(self, **rules: Any) -> None:
        super().__init__(**{"operations": ["CREATE", "UPDATE"], **rules})

    def objects(self) -> dict[str, Object]:
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": self.name}}
        expression = "Object{metadata: Object.metadata{labels: {'is': string(object['is-refused'])}}}"
        spec = {
            "matchConstraints": {"resourceRules": [self._rules]},
            "matchConditions": [{"name": "marked", "expression": f"request.?name.orValue('').startsWith('{MARK}')"}],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
            "reinvocationPolicy": "Never",
        }
        bound = {"policyName": self.name}
        return {
            f"{GROUP}/mutatingadmissionpolicies": {**head, "kind": "MutatingAdmissionPolicy", "spec": spec},
            f"{GROUP}/mutatingadmissionpolicybindings": {
                **head,
                "kind": "MutatingAdmissionPolicyBinding",
                "spec": bound,
            },
        }


class Plugin(Refuser):
    """A plug-in of a server that runs `code`; it refuses in a cluster while `directory` has a file of that name."""

    unstored = False

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    @property
    def code(self) -> str:
        """What the server runs before anything else."""
        return f"{_PLUGIN}DIRECTORY, MARK, TEXT = {str(self._directory)!r}, {MARK!r}, {self.text!r}\n"

    @contextmanager
    def installed(self, api: Api) -> Iterator[None]:
        switch = self._directory / cluster_of(api)
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()


_PLUGIN = """from pathlib import Path
import atoll.shard.admission.plugins as listed
from atoll.machinery.apiserver.admission.chain import Plugin
from atoll.machinery.apiserver.call import errors

class Poison(Plugin):
    def validate(self, review):
        name = (review.obj or review.old)["metadata"]["name"]
        if name.startswith(MARK) and Path(DIRECTORY, review.call.cluster).exists():
            raise errors.forbidden(review.call.kind, name, "it " + TEXT)

before = listed.plugins
listed.plugins = lambda *args: [*before(*args), Poison()]
"""


class _Webhook(Refuser):
    """A webhook of its own server, which refuses and remembers what it was asked."""

    kind = ""

    def __init__(self, **rules: Any) -> None:
        super().__init__(**rules)
        self._server: WebhookServer | None = None

    @property
    def requests(self) -> list[Object]:
        """The AdmissionRequests so far."""
        assert self._server is not None
        return [call.body["request"] for call in self._server.calls]

    def objects(self) -> dict[str, Object]:
        assert self._server is not None
        webhook = {
            "name": f"{self.name}.example.com",
            "clientConfig": {"url": self._server.url, "caBundle": self._server.ca_bundle},
            "rules": [self._rules],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": self.kind, "metadata": {"name": self.name}}
        return {f"{GROUP}/{self.kind.lower()}s": {**head, "webhooks": [webhook]}}

    @contextmanager
    def installed(self, api: Api) -> Iterator[None]:
        with WebhookServer(self._answer) as self._server, super().installed(api):
            yield

    def _answer(self, review: Object) -> Object:
        asked = review["request"]
        response: Object = {"uid": asked["uid"], "allowed": not asked.get("name", "").startswith(MARK)}
        if not response["allowed"]:
            response["status"] = {"message": self.text, "code": 403}
        return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


class ValidatingWebhook(_Webhook):
    """A webhook of a ValidatingWebhookConfiguration."""

    kind = "ValidatingWebhookConfiguration"


class MutatingWebhook(_Webhook):
    """A webhook of a MutatingWebhookConfiguration."""

    kind = "MutatingWebhookConfiguration"


REFUSERS: dict[str, type[Refuser]] = {
    "validating policy": ValidatingPolicy,
    "validating webhook": ValidatingWebhook,
    "mutating webhook": MutatingWebhook,
    "mutating policy": MutatingPolicy,
}
