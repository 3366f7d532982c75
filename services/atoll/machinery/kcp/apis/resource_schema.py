"""Converts a CustomResourceDefinition to the APIResourceSchema of the same kind.

`kubectl kcp crd snapshot` prints the result for a provider to create; the edge service has its own schemas made here.
Invariant: names, versions, schemas, columns, subresources and conversion of the CRD are unchanged; what a schema cannot
express (conversion by a service of a cluster) is an error, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from atoll.machinery.kcp.apis.bound_crds import VERSION_FIELDS
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object

API_VERSION, KIND = "apis.kcp.io/v1alpha1", "APIResourceSchema"
_PREFIX = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class NotExportable(Exception):
    """A definition has no equivalent schema; the message gives the reason."""


def resource_schema(crd: Object, prefix: str) -> Object:
    """Return the APIResourceSchema `<prefix>.<plural>.<group>` of an apiextensions.k8s.io/v1 CustomResourceDefinition.

    Needs no server: Kubernetes' defaults (singular, listKind, conversion None) are set here. Raises NotExportable; the
    server validates the schema itself.
    """
    if not _PREFIX.fullmatch(prefix):
        raise NotExportable(
            f'"{prefix}" cannot begin the name of a schema: lower case letters, digits and -, a letter first'
        )
    if crd.get("apiVersion") != "apiextensions.k8s.io/v1" or crd.get("kind") != "CustomResourceDefinition":
        raise NotExportable(
            f"{crd.get('kind')} of {crd.get('apiVersion')} is no CustomResourceDefinition of apiextensions.k8s.io/v1"
        )
    metadata, spec = _mapping(crd.get("metadata")), _mapping(crd.get("spec"))
    names = _names(_mapping(spec.get("names")))
    group = str(spec.get("group") or "")
    schema: Object = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"{prefix}.{names.get('plural', '')}.{group or 'core'}"},
        "spec": {"group": group, "names": names, "scope": spec.get("scope") or ""},
    }
    approved = _mapping(metadata.get("annotations")).get(wellknown.API_APPROVED)
    if approved is not None:
        schema["metadata"]["annotations"] = {wellknown.API_APPROVED: approved}
    versions = list(_versions(spec))
    schema["spec"]["versions"] = versions
    conversion = _conversion(_mapping(spec.get("conversion")), several=len(versions) > 1)
    if conversion:
        schema["spec"]["conversion"] = conversion
    return schema


def _names(names: Object) -> Object:
    kind = str(names.get("kind") or "")
    filled = {"singular": names.get("singular") or kind.lower(), "listKind": names.get("listKind") or f"{kind}List"}
    return {**names, **filled} if kind else dict(names)


def _versions(spec: Object) -> Iterator[Object]:
    for version in spec.get("versions") or ():
        schema = _mapping(version.get("schema")).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            raise NotExportable(f"version {version.get('name')} has no schema")
        yield {**{key: version[key] for key in VERSION_FIELDS if version.get(key) is not None}, "schema": schema}


def _conversion(conversion: Object, *, several: bool) -> Object:
    """Return the conversion of the schema; with several versions it is required, while a definition may omit it."""
    strategy = conversion.get("strategy")
    if strategy != "Webhook":
        return {"strategy": strategy or "None"} if several or strategy else {}
    webhook = _mapping(conversion.get("webhook"))
    client = _mapping(webhook.get("clientConfig"))
    if not client.get("url"):
        raise NotExportable(
            "its versions are converted by a service of a cluster, which workspaces do not have;"
            " give spec.conversion.webhook.clientConfig.url"
        )
    called = {key: client[key] for key in ("url", "caBundle") if client.get(key)}
    reviewed = {"conversionReviewVersions": webhook.get("conversionReviewVersions") or ["v1"]}
    return {"strategy": "Webhook", "webhook": {"clientConfig": called, **reviewed}}


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
