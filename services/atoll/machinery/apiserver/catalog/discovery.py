"""Discovery documents of one catalogue, legacy and aggregated.

`serving.documents` makes each once and shares it among the clusters with the same kinds; a catalogue is immutable, so
the documents need no invalidation.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict

import msgspec

from atoll.machinery.apiserver.call.negotiation import JSON, YAML, clauses
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.edge.denaturing import IDENTITY as DENATURED
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import CORE
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import NotAcceptable
from atoll.machinery.meta.versions import version_priority

GROUP = "apidiscovery.k8s.io"
_LIST = "APIGroupDiscoveryList"


class Document(msgspec.Struct, frozen=True):
    """An encoded document and its ETag."""

    body: bytes
    etag: str
    content_type: str = JSON


def groups(catalog: Catalog) -> dict[str, list[str]]:
    """Return named groups in order of precedence, each with its versions by priority, without the core group.

    The system's groups come first, in their own order; tenants' groups follow in alphabetical order, as groups of
    CustomResourceDefinitions do in Kubernetes. Clients take the first group that has a resource.
    """
    found: dict[str, set[str]] = defaultdict(set)
    system: dict[str, None] = {}
    for kind in catalog.kinds.values():
        if kind.group:
            found[kind.group].add(kind.version)
            if kind.identity in (CORE, DENATURED):
                system[kind.group] = None
    ordered = [*system, *sorted(found.keys() - system.keys())]
    return {group: sorted(found[group], key=version_priority) for group in ordered}


def _kinds(catalog: Catalog, group: str, version: str) -> list[Kind]:
    """Return the kinds of a version, by name; none if it is not served."""
    return sorted(catalog.by_version.get((group, version), ()), key=lambda kind: kind.plural)


def _document(value: Object, content_type: str = JSON) -> Document:
    body = encode_json(value) + b"\n"
    return Document(body, hashlib.sha512(body).hexdigest().upper(), content_type)


# --- legacy ----------------------------------------------------------------------------------------------


def api_versions(catalog: Catalog, address: str) -> Document:
    """`/api`."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return _document({"kind": "APIVersions", "versions": _core(catalog), "serverAddressByClientCIDRs": where})


def _core(catalog: Catalog) -> list[str]:
    return sorted((version for group, version in catalog.versions if not group), key=version_priority)


def group_list(catalog: Catalog) -> Document:
    """`/apis`."""
    items = [_group(group, versions) for group, versions in groups(catalog).items()]
    return _document({"kind": "APIGroupList", "apiVersion": "v1", "groups": items})


def group(catalog: Catalog, name: str) -> Document | None:
    """`/apis/<group>`; None if it is not served."""
    versions = groups(catalog).get(name)
    return _document({"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}) if versions else None


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(catalog: Catalog, group_name: str, version: str) -> Document:
    """`/api/v1` and `/apis/<group>/<version>`, of a served version."""
    kinds = _kinds(catalog, group_name, version)
    # kcp hashes the cluster of a definition too, which is empty for the kinds of a virtual workspace.
    cluster = "/" if catalog.legacy_discovery else ""
    resources = [entry for kind in kinds for entry in _resources(kind, _verbs(catalog, kind), cluster)]
    group_version = f"{group_name}/{version}" if group_name else version
    return _document(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}
    )


def _verbs(catalog: Catalog, kind: Kind) -> list[str]:
    """Return the verbs of a kind; while its definition terminates, only reads and deletes."""
    if (kind.group, kind.plural) in catalog.terminating:
        return [verb for verb in kind.verbs if verb not in {"create", "patch", "update"}]
    return list(kind.verbs)


def _resources(kind: Kind, verbs: list[str], cluster: str) -> list[Object]:
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs,
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    group = kind.stored_as[0] if kind.stored_as is not None else kind.group
    stored = f"{cluster}{group}/{kind.storage_version or kind.version}/{kind.kind}"
    if "get" in kind.verbs:
        entry["storageVersionHash"] = _storage_hash(stored)
    return [entry, *(_subresource(kind, sub.name) for sub in kind.subresources)]


def _storage_hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _subresource(kind: Kind, name: str) -> Object:
    sub = kind.subresource(name)
    assert sub is not None
    entry: Object = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind,
        # As in kcp, null for a subresource that the schema has and a virtual workspace does not serve.
        "verbs": list(sub.verbs) or None,
    }
    if (sub.group, sub.version) != (kind.group, kind.version):
        entry["group"], entry["version"] = sub.group, sub.version
    return entry


# --- aggregated ------------------------------------------------------------------------------------------


def aggregated_version(accept: str) -> str | None:
    """Return `v2` or `v2beta1` if the first served clause is aggregated discovery, None for legacy.

    Raises NotAcceptable if no clause is served.
    """
    for clause in clauses(accept):
        if clause.quality <= 0 or clause.media_type not in {JSON, YAML, "*/*", "application/*"}:
            continue
        if "as" not in clause.parameters:
            return None
        version = clause.parameters.get("v", "")
        ours = clause.parameters.get("g") == GROUP and clause.parameters["as"] == _LIST
        # The reply's media type has these parameters, so it is JSON; clients do not request it as YAML.
        if ours and version in {"v2", "v2beta1"} and clause.media_type != YAML:
            return version
    if not accept.strip():
        return None
    raise NotAcceptable(f"only the following media types are accepted: {JSON}")


def aggregated(catalog: Catalog, version: str, *, core: bool) -> Document:
    """`/api` (core) or `/apis` in aggregated form."""
    names = {"": _core(catalog)} if core else groups(catalog)
    items = [_aggregated_group(catalog, name, versions) for name, versions in names.items()]
    value: Object = {"kind": _LIST, "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": items}
    return _document(value, f"{JSON};g={GROUP};v={version};as={_LIST}")


def _aggregated_group(catalog: Catalog, name: str, versions: list[str]) -> Object:
    metadata: Object = {"creationTimestamp": None}
    if name:
        metadata["name"] = name
    return {"metadata": metadata, "versions": [_aggregated_version(catalog, name, version) for version in versions]}


def _aggregated_version(catalog: Catalog, group_name: str, version: str) -> Object:
    resources = [_aggregated_resource(kind, _verbs(catalog, kind)) for kind in _kinds(catalog, group_name, version)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_resource(kind: Kind, verbs: list[str]) -> Object:
    entry: Object = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs,
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in kind.subresources
        ]
    return entry
