"""APIExports: the identity of an export, and the fields that the system adds.

An identity is a Secret's data key `key`; the export's status shows its SHA-256, under which bound objects are stored.
The export controller calls these functions and writes the results. Invariant: the identity hash of an export never
changes, even if its Secret does.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from atoll.machinery.kcp.apis.root_exports import IDENTITY_KEY
from atoll.machinery.kcp.namespaces import KCP_SYSTEM
from atoll.machinery.meta import hashes, rawscan
from atoll.machinery.meta.conditions import ERROR, FALSE, TRUE, Condition, find, remove, with_conditions
from atoll.machinery.meta.objects import Object, annotations_of, spec_of, status_of
from atoll.machinery.meta.wellknown import CLUSTER, PATH

IDENTITY_VALID, URLS_READY = "IdentityValid", "VirtualWorkspaceURLsReady"
GENERATION_FAILED, VERIFICATION_FAILED = "IdentityGenerationFailed", "IdentityVerificationFailed"
#: An export with this annotation, of any value, gets no default endpoint slice.
SKIP_SLICE = "apiexports.apis.kcp.io/skip-endpointslice"
#: Prefix of annotations copied from an export to its bindings.
EXTRA_PREFIX = "extra.apis.kcp.io/"
_EXTRA = rawscan.text(EXTRA_PREFIX)


class SecretReference(NamedTuple):
    """Namespace and name of an identity Secret in the export's cluster. If either is empty, there is no Secret."""

    namespace: str
    name: str


class NoIdentity(Exception):
    """A Secret without an identity. The message is for the export's owner and contains no secret data."""


def secret_reference(export: Object) -> SecretReference | None:
    """Return the Secret that an export names; None where the system generates it."""
    reference = (spec_of(export).get("identity") or {}).get("secretRef")
    if reference is None:
        return None
    return SecretReference(reference.get("namespace") or "", reference.get("name") or "")


def generated_reference(export: Object) -> SecretReference:
    """Return the reference to the generated Secret of an export."""
    return SecretReference(KCP_SYSTEM, export["metadata"]["name"])


def with_reference(export: Object, reference: SecretReference) -> Object:
    """Return the export with this reference to its identity Secret."""
    spec = spec_of(export)
    named = {"name": reference.name, "namespace": reference.namespace}
    return {**export, "spec": {**spec, "identity": {**(spec.get("identity") or {}), "secretRef": named}}}


def new_secret(reference: SecretReference) -> Object:
    """Build a Secret with a new identity."""
    key = base64.b64encode(hashes.new_identity_key().encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "data": {IDENTITY_KEY: key},
        "metadata": {"name": reference.name, "namespace": reference.namespace},
    }


def identity_of(secret: Object | None, reference: SecretReference) -> str:
    """Return the identity hash of a Secret; `secret` None: it does not exist. Raises NoIdentity."""
    if secret is None:
        raise NoIdentity(f'secret "{reference.namespace}/{reference.name}" not found')
    key = base64.b64decode((secret.get("data") or {}).get(IDENTITY_KEY) or "")
    if not key:
        raise NoIdentity(f'secret "{reference.namespace}/{reference.name}" is missing data.{IDENTITY_KEY}')
    return hashes.identity_hash(key)


def with_verified_identity(status: Object, secret: Object | None, reference: SecretReference, now: str) -> Object:
    """Return the status with the hash of the Secret, if it had none, and the condition whether both agree."""
    known = status.get("identityHash") or ""
    try:
        found = identity_of(secret, reference)
    except NoIdentity as error:
        return with_conditions(status, now, _invalid(VERIFICATION_FAILED, str(error)))
    if known and found != known:
        text = f'hash mismatch: identity secret hash "{found}" must match status.identityHash "{known}"'
        return with_conditions(status, now, _invalid(VERIFICATION_FAILED, text))
    return with_conditions({**status, "identityHash": found}, now, Condition(IDENTITY_VALID, TRUE))


def with_generation_error(status: Object, why: str, now: str) -> Object:
    """Return the status of an export whose Secret could not be created."""
    return with_conditions(status, now, _invalid(GENERATION_FAILED, f"Error creating identity secret: {why}"))


def with_urls(status: Object, urls: Iterable[str], now: str) -> Object:
    """Return the status with the deprecated virtual workspace URLs, in the given order."""
    addresses = [{"url": url} for url in urls]
    return with_conditions({**status, "virtualWorkspaces": addresses}, now, Condition(URLS_READY, TRUE))


def without_urls(status: Object) -> Object:
    """Return the status without the deprecated URLs and their condition; the same object where it has neither."""
    conditions = status.get("conditions") or []
    if "virtualWorkspaces" not in status and find(conditions, URLS_READY) is None:
        return status
    rest = {key: value for key, value in status.items() if key != "virtualWorkspaces"}
    return {**rest, "conditions": remove(conditions, URLS_READY)}


def default_slice(export: Object) -> Object | None:
    """Build the export's default APIExportEndpointSlice; None where an annotation disables it."""
    metadata = export["metadata"]
    annotations, name = annotations_of(export), metadata["name"]
    if SKIP_SLICE in annotations:
        return None
    owner = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "name": name, "uid": metadata["uid"]}
    path = annotations.get(PATH) or annotations.get(CLUSTER, "")
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExportEndpointSlice",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"export": {"path": path, "name": name}},
    }


class BoundExport(NamedTuple):
    """The export that a binding names; `cluster` is empty until the binding has found it."""

    cluster: str
    path: str
    name: str


class _Export(msgspec.Struct, frozen=True):
    path: str = ""
    name: str = ""


class _Reference(msgspec.Struct, frozen=True):
    export: _Export = _Export()


class _Spec(msgspec.Struct, frozen=True):
    reference: _Reference = _Reference()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    api_export_cluster_name: str = ""


class _Binding(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_binding = msgspec.json.Decoder(_Binding)


def bound_export(binding: bytes, cluster: str) -> BoundExport:
    """Return the export of a stored APIBinding of a cluster. Runs at every write of one, so it decodes few fields."""
    found = _binding.decode(binding)
    export = found.spec.reference.export
    return BoundExport(found.status.api_export_cluster_name, export.path or cluster, export.name)


def export_of(binding: Object, cluster: str = "") -> BoundExport:
    """Return the export of a decoded APIBinding; `cluster` is the binding's."""
    export = (spec_of(binding).get("reference") or {}).get("export") or {}
    home = status_of(binding).get("apiExportClusterName") or ""
    return BoundExport(home, export.get("path") or cluster, export.get("name") or "")


def extra_annotations(obj: Object) -> dict[str, str]:
    """Return the annotations of an export that are copied to its bindings."""
    annotations = annotations_of(obj)
    return {key: value for key, value in annotations.items() if key.startswith(EXTRA_PREFIX)}


def may_have_extra(value: bytes) -> bool:
    """Return whether stored bytes may contain extra annotations; if so, the caller decodes them."""
    return _EXTRA in value


def with_extra_annotations(binding: Object, extra: dict[str, str]) -> Object:
    """Return the binding with exactly these extra annotations, others unchanged; the same object without a change."""
    if extra_annotations(binding) == extra:
        return binding
    metadata = binding["metadata"]
    annotations = annotations_of(binding)
    kept = {key: value for key, value in annotations.items() if not key.startswith(EXTRA_PREFIX)}
    return {**binding, "metadata": {**metadata, "annotations": {**kept, **extra}}}


def _invalid(reason: str, message: str) -> Condition:
    return Condition(IDENTITY_VALID, FALSE, reason, message, ERROR)
