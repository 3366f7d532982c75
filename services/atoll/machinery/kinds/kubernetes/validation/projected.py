"""Files of a volume that come from the API: keys of secrets and config maps, fields of the pod, tokens."""

from __future__ import annotations

from collections.abc import Callable

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.environment import VOLUME_FIELDS, own_field, own_resource
from atoll.machinery.kinds.kubernetes.validation.paths import mode, not_reserved
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, integer, not_empty, one_of, present
from atoll.machinery.kinds.kubernetes.validation.scheduling import selector
from atoll.machinery.kinds.signers import bundle_name_errors, is_kubernetes_signer, signer_name_errors
from atoll.machinery.meta.labels import label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import forbidden, invalid, required, too_long

_SOURCES = ("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate")
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_SHORTEST_TOKEN_S, _LONGEST_TOKEN_S = 600, 2**32
_SHORTEST_CERTIFICATE_S, _LONGEST_CERTIFICATE_S, _LONGEST_OWN_CERTIFICATE_S = 3600, 91 * 86400, 86400
_ANNOTATIONS_SIZE = 262_144
_CONFLICT = "conflicting duplicate paths"


def keys(source: Object, at: str) -> Errors:
    """Check which keys become files."""
    yield from mode(source.get("defaultMode"), f"{at}.defaultMode")
    for index, item in objects(source, "items"):
        yield from key(item, f"{at}.items[{index}]")


def key(item: Object, at: str) -> Errors:
    """Check a key that becomes a file."""
    yield from not_empty(item, at, "key", "path")
    yield from not_reserved(text(item, "path"), f"{at}.path")
    yield from mode(item.get("mode"), f"{at}.mode")


def own_files(source: Object, at: str) -> Errors:
    """Check files with fields and resources of the pod. Errors name the volume, not the file, as Kubernetes' do."""
    yield from mode(source.get("defaultMode"), f"{at}.defaultMode")
    for _, item in objects(source, "items"):
        yield from _own_file(item, at)


def _own_file(item: Object, at: str) -> Errors:
    yield from not_empty(item, at, "path")
    yield from not_reserved(text(item, "path"), f"{at}.path")
    by_field, by_resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if isinstance(by_field, dict):
        yield from own_field(by_field, f"{at}.fieldRef", VOLUME_FIELDS)
        if by_resource is not None:
            yield invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif isinstance(by_resource, dict):
        yield from own_resource(by_resource, f"{at}.resourceFieldRef", is_volume=True)
    else:
        yield required(at, "one of fieldRef and resourceFieldRef is required")
    yield from mode(item.get("mode"), f"{at}.mode")


class _Paths:
    """The paths of one volume, which have to be different."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._seen = set[str]()

    def add(self, path: str, value: str) -> Errors:
        if path in self._seen:
            yield invalid(self._at, value, _CONFLICT)
        self._seen.add(path)


def projected(volume: Object, at: str, *, any_token_path: bool) -> Errors:
    """Check a volume with files from several sources."""
    yield from mode(volume.get("defaultMode"), f"{at}.defaultMode")
    paths = _Paths(at)
    for index, source in objects(volume, "sources"):
        field = f"{at}.sources[{index}]"
        found = present(source, _SOURCES)
        for name in found:
            value = mapping(source, name)
            if name == "serviceAccountToken":
                yield from _token(value, f"{field}.{name}", at, any_token_path)
            else:
                yield from _CHECKS[name](value, f"{field}.{name}", paths)
        if len(found) > 1:
            yield forbidden(field, "may not specify more than 1 volume type per source")


def _data(source: Object, at: str, paths: _Paths) -> Errors:
    if not text(source, "name"):
        yield required(f"{at}.name")
    for index, item in objects(source, "items"):
        yield from key(item, f"{at}.items[{index}]")
        if text(item, "path"):
            yield from paths.add(item["path"], text(source, "name"))


def _own(source: Object, at: str, paths: _Paths) -> Errors:
    for _, item in objects(source, "items"):
        yield from _own_file(item, at)
        if text(item, "path"):
            yield from paths.add(item["path"], item["path"])


def _token(source: Object, at: str, volume: str, any_path: bool) -> Errors:
    seconds = integer(source.get("expirationSeconds"))
    if seconds is not None and seconds < _SHORTEST_TOKEN_S:
        yield invalid(f"{at}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds is not None and seconds > _LONGEST_TOKEN_S:
        yield invalid(f"{at}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if source.get("path") == "":
        yield required(f"{volume}.path")
    elif not any_path:
        yield from not_reserved(text(source, "path"), f"{volume}.path")


def _bundle(source: Object, at: str, paths: _Paths) -> Errors:
    name, signer = source.get("name"), source.get("signerName")
    if isinstance(name, str) and isinstance(signer, str):
        yield invalid(at, source, "only one of name and signerName may be used")
    elif isinstance(name, str):
        if not name:
            yield required(f"{at}.name", "must be a valid object name")
        for problem in bundle_name_errors(name):
            yield invalid(f"{at}.name", name, f"not a valid clustertrustbundlename: {problem}")
        if source.get("labelSelector") is not None:
            detail = "labelSelector must be unset if name is specified"
            yield invalid(f"{at}.labelSelector", source["labelSelector"], detail)
    elif isinstance(signer, str):
        if not signer:
            yield required(f"{at}.signerName", "must be a valid signer name")
        yield from signer_name_errors(signer, f"{at}.signerName")
        yield from selector(source.get("labelSelector"), f"{at}.labelSelector")
    else:
        yield required(at, "either name or signerName must be specified")
    yield from not_empty(source, at, "path")
    yield from not_reserved(text(source, "path"), f"{at}.path")
    yield from paths.add(text(source, "path"), text(source, "path"))


def _certificate(source: Object, at: str, paths: _Paths) -> Errors:
    signer = text(source, "signerName")
    if "signerName" in source:
        yield from signer_name_errors(signer, f"{at}.signerName")
    yield from _user_annotations(mapping(source, "userAnnotations"), f"{at}.userAnnotations")
    yield from one_of(source, at, "keyType", _KEY_TYPES)
    seconds, field = integer(source.get("maxExpirationSeconds")), f"{at}.maxExpirationSeconds"
    longest = _LONGEST_OWN_CERTIFICATE_S if is_kubernetes_signer(signer) else _LONGEST_CERTIFICATE_S
    if seconds is not None and seconds < _SHORTEST_CERTIFICATE_S:
        yield invalid(field, seconds, "if provided, maxExpirationSeconds must be >= 3600")
    if seconds is not None and seconds > longest:
        yield invalid(field, seconds, f"if provided, maxExpirationSeconds must be <= {longest}")
    found = [name for name in _CERTIFICATE_PATHS if text(source, name)]
    for name in found:
        yield from not_reserved(source[name], f"{at}.{name}")
        yield from paths.add(source[name], source[name])
    if not found:
        yield required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")


def _user_annotations(annotations: Object, field: str) -> Errors:
    size = 0
    for name, value in annotations.items():
        lower = name.lower()
        if not lower:
            yield required(field)
        elif problems := label_key_errors(lower):
            yield from invalid_values(field, lower, problems)
        elif "/" not in lower:
            yield invalid(field, lower, 'must be a domain-prefixed key (such as "acme.io/foo")')
        size += len(name.encode()) + (len(value.encode()) if isinstance(value, str) else 0)
    if size > _ANNOTATIONS_SIZE:
        yield too_long(field, _ANNOTATIONS_SIZE)


_CHECKS: dict[str, Callable[[Object, str, _Paths], Errors]] = {
    "secret": _data,
    "configMap": _data,
    "downwardAPI": _own,
    "clusterTrustBundle": _bundle,
    "podCertificate": _certificate,
}
