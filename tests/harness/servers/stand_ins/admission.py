"""Admission webhooks of the tests: their answers, their configurations, and a server with several of them.

    with AdmissionServer({"/deny": deny("no")}) as server:
        register(api, "Validating", server.webhook("/deny", CONFIGMAPS))

A configuration that is `register`ed also holds a webhook that refuses marked ConfigMaps, as upstream's conformance
tests do it: the configuration is in force once such a ConfigMap is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from harness.clients.api import Api, configmap, eventually
from harness.servers.stand_ins.webhook import Odd, WebhookServer

Object = dict[str, Any]
Answering = Callable[[Object], Object | bytes | Odd]

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
CONFIGMAPS: Object = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
MARKER = "webhook-marker"
#: A configuration acts within a second; a busy machine takes longer.
IN_FORCE_S = 20.0


def answer(review: Object, **response: Any) -> Object:
    """An answer to a review."""
    found = {"uid": review["request"]["uid"], **response}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": found}


def allow(review: Object) -> Object:
    return answer(review, allowed=True)


def deny(message: str, **status: Any) -> Answering:
    """A webhook that denies everything."""
    return lambda review: answer(review, allowed=False, status={"message": message, **status})


def patch(*operations: Object) -> Answering:
    """A webhook that answers each review with the same JSON patch."""
    return lambda review: patched(review, *operations)


def patched(review: Object, *operations: Object) -> Object:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return answer(review, allowed=True, patch=encoded, patchType="JSONPatch")


class AdmissionServer(WebhookServer):
    """A server with one webhook for each path."""

    def __init__(self, webhooks: dict[str, Answering], *, again: WebhookServer | None = None) -> None:
        super().__init__(allow, again=again)
        self.webhooks = {f"/{MARKER}": deny("this webhook denies all requests"), **webhooks}
        self.base = f"https://127.0.0.1:{self.port}"

    def answered(self, path: str, body: Object) -> Object | bytes | Odd:
        return self.webhooks[path.partition("?")[0]](body)

    def requests(self, path: str) -> list[Object]:
        """The requests of the reviews that a webhook got, in order."""
        return [call.body["request"] for call in self.calls if call.path.partition("?")[0] == path]

    def webhook(self, path: str, *rules: Object, **more: Any) -> Object:
        """A webhook of a configuration that calls this server."""
        return {
            "name": f"{path.strip('/').replace('/', '-') or 'root'}.example.com",
            "clientConfig": {"url": self.base + path, "caBundle": self.ca_bundle},
            "rules": list(rules) or [CONFIGMAPS],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1", "v1beta1"],
            **more,
        }

    def marker(self, name: str) -> Object:
        """The webhook that shows that a configuration acts."""
        selector = {"matchLabels": {MARKER: name}}
        return self.webhook(f"/{MARKER}", CONFIGMAPS, objectSelector=selector)


def configurations(kind: str) -> str:
    """The path of the configurations of a kind, Validating or Mutating."""
    return f"{GROUP}/{kind.lower()}webhookconfigurations"


def configuration(kind: str, name: str, *webhooks: Object, **metadata: Any) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name, **metadata},
        "webhooks": list(webhooks),
    }


def register(
    api: Api, server: AdmissionServer, kind: str, *webhooks: Object, name: str = "hooks", **metadata: Any
) -> Object:
    """Create a configuration and wait until it is in force; returns what was stored."""
    body = configuration(kind, name, *webhooks, server.marker(name), **metadata)
    stored: Object = api.post(configurations(kind), body).json
    wait_until_in_force(api, name)
    return stored


def wait_until_in_force(api: Api, name: str) -> None:
    """Wait until the marker's webhook of a configuration refuses."""
    marked = configmap(f"marker-{name}", labels={MARKER: name})

    def refused() -> bool:
        found = api.send("POST", f"{MAPS}?dryRun=All", marked)
        return found.code >= 400 and "denied the request" in found.message

    eventually(refused, f"the configuration {name} in force", IN_FORCE_S)
