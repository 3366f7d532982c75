"""Every served kind, and a minimal object of each, for the matrix of kinds and verbs.

Kinds are found, not listed: built-in ones in the registry, kcp's in `schemas/crds`, and two definitions of tenants. A
new kind is included automatically; it needs a row in CONTENT only if it requires more than a name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.process.resources import schema_path
from harness.clients.api import crd

Object = dict[str, Any]
Content = Object | Callable[[str], Object]

ADMISSION, RBAC, KCP = "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "apis.kcp.io"
#: Served in root alone.
IN_ROOT = frozenset({"shards"})
#: Each workspace has one, and tenants cannot create another.
SINGLETONS = {"logicalclusters": "cluster"}


def definitions() -> list[Object]:
    """A tenant's definitions: a namespaced kind with status and scale, and a cluster-scoped one in two versions."""
    version = crd("rings")["spec"]["versions"][0]
    both = [{**version, "name": "v1"}, {**version, "name": "v1beta1", "storage": False}]
    return [crd("circles"), crd("rings", scope="Cluster", versions=both)]


def kinds() -> list[Kind]:
    """Every kind with stored objects, in all its versions."""
    found = [kind for kind in NATIVE if "get" in kind.verbs]
    for path in sorted(schema_path("crds").glob("*.yaml")):
        found += _kinds(yaml.load(path.read_text(), yaml.CSafeLoader))
    return found + [kind for definition in definitions() for kind in _kinds(definition)]


def _kinds(definition: Object) -> list[Kind]:
    return kinds_of_crd({**definition, "status": {"conditions": [{"type": "Established", "status": "True"}]}})


def sample(kind: Kind, name: str, **metadata: Any) -> Object:
    """An object to send."""
    content = CONTENT.get((kind.group, kind.plural), {})
    given = content(name) if callable(content) else content
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}, **given}


def name_of(kind: Kind, number: int) -> str:
    """A valid name for the kind, different for each number."""
    if kind.plural == "customresourcedefinitions":
        return f"squares{number}.shapes.example.com"
    if kind.plural in {"apiresourceschemas", "apiconversions"}:
        return f"v{number}.circles.example.com"
    return SINGLETONS.get(kind.plural, f"x{number}")


def needed(kind: Kind, name: str) -> list[tuple[str, Object]]:
    """The objects required before one of that name, each with its path."""
    if kind.plural != "apiconversions":
        return []
    schema = {"apiVersion": kind.api_version, "kind": "APIResourceSchema", "metadata": {"name": name}}
    return [(f"/apis/{kind.api_version}/apiresourceschemas", schema | _schema_of_circles(name))]


def collection(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def certificate_request() -> str:
    """A PKCS#10 request in PEM, base64 as JSON carries it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def _schema_of_circles(name: str) -> Object:
    schema: Object = {"type": "object", "properties": {"spec": {"type": "object"}}}
    names = {"plural": "circles", "singular": "circle", "kind": "Circle", "listKind": "CircleList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {"spec": {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]}}


_ROLE = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
_USER = [{"apiGroup": RBAC, "kind": "User", "name": "kcp-admin"}]
_RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
_MATCH = {
    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}]
}
_WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://hook.example.com/a"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [{**_MATCH["resourceRules"][0], "scope": "*"}],
}
_MUTATION = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"},
}
_ISSUER = {
    "issuer": {"url": "https://issuer.example.com", "audiences": ["a"]},
    "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
}
_EXPORT = {"path": "root", "name": "tenancy.kcp.io"}

#: The fields that an object of a kind requires beside a name.
CONTENT: dict[tuple[str, str], Content] = {
    ("", "configmaps"): {"data": {"k": "v"}},
    ("", "secrets"): {"data": {"k": "dg=="}},
    ("", "events"): {"involvedObject": {"namespace": "default", "kind": "ConfigMap", "name": "a"}, "reason": "Because"},
    ("", "resourcequotas"): {"spec": {"hard": {"configmaps": "500"}}},
    ("events.k8s.io", "events"): {
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "example.com/c",
        "reportingInstance": "c-1",
        "action": "Act",
        "reason": "Because",
        "type": "Normal",
        "regarding": {"namespace": "default", "kind": "ConfigMap", "name": "a"},
    },
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "spec": {"request": certificate_request(), "signerName": "example.com/signer", "usages": ["client auth"]}
    },
    (RBAC, "clusterrolebindings"): {"roleRef": _ROLE, "subjects": _USER},
    (RBAC, "rolebindings"): {"roleRef": _ROLE, "subjects": _USER},
    (RBAC, "clusterroles"): {"rules": _RULES},
    (RBAC, "roles"): {"rules": _RULES},
    (ADMISSION, "mutatingadmissionpolicies"): {
        "spec": {"matchConstraints": _MATCH, "mutations": [_MUTATION], "reinvocationPolicy": "Never"}
    },
    (ADMISSION, "mutatingadmissionpolicybindings"): {"spec": {"policyName": "p"}},
    (ADMISSION, "mutatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    (ADMISSION, "validatingadmissionpolicies"): {
        "spec": {"matchConstraints": _MATCH, "validations": [{"expression": "true"}]}
    },
    (ADMISSION, "validatingadmissionpolicybindings"): {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    (ADMISSION, "validatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("apiextensions.k8s.io", "customresourcedefinitions"): lambda name: {"spec": crd(name.partition(".")[0])["spec"]},
    ("coordination.k8s.io", "leases"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    (KCP, "apibindings"): {"spec": {"reference": {"export": {"path": "root", "name": "shards.core.kcp.io"}}}},
    (KCP, "apiconversions"): {"spec": {"conversions": []}},
    (KCP, "apiexportendpointslices"): {"spec": {"export": _EXPORT}},
    (KCP, "apiexports"): {"spec": {}},
    (KCP, "apiresourceschemas"): _schema_of_circles,
    ("cache.kcp.io", "clustercachedresources"): lambda name: {
        "spec": {"group": "example.com", "version": "v1", "resource": f"{name}things"}
    },
    ("cache.kcp.io", "clustercachedresourceendpointslices"): {
        "spec": {"clusterCachedResource": {"name": "c"}, "export": _EXPORT}
    },
    ("core.kcp.io", "shards"): {"spec": {"baseURL": "https://elsewhere.example.com"}},
    ("tenancy.kcp.io", "workspaces"): {"spec": {"type": {"name": "universal", "path": "root"}}},
    ("tenancy.kcp.io", "workspacetypes"): {"spec": {}},
    ("tenancy.kcp.io", "workspaceauthenticationconfigurations"): {"spec": {"jwt": [_ISSUER]}},
    ("topology.kcp.io", "partitions"): {"spec": {"selector": {"matchLabels": {"region": "eu"}}}},
    ("topology.kcp.io", "partitionsets"): {"spec": {"dimensions": ["region"]}},
    ("shapes.example.com", "circles"): {"spec": {"replicas": 1, "colour": "red"}},
    ("shapes.example.com", "rings"): {"spec": {"replicas": 1, "colour": "red"}},
}
