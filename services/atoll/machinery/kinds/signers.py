"""Names of signers of certificates, and of the bundles of trust that signers publish."""

from __future__ import annotations

from atoll.machinery.meta.labels import SUBDOMAIN_SIZE, dns_label_errors, dns_subdomain_errors
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid, required, too_long

_PATH_SIZE = 317


def is_kubernetes_signer(name: str) -> bool:
    """Report whether a signer is one of Kubernetes itself."""
    domain = name.partition("/")[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def signer_name_errors(signer: str, field: str) -> list[FieldError]:
    """Return the errors of the name of a signer: a domain and a path."""
    domain, slash, path = signer.partition("/")
    if not signer:
        return [required(field)]
    if not slash or "/" in path:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(field, signer, detail)]
    errors = [too_long(field, SUBDOMAIN_SIZE)] if len(domain) > SUBDOMAIN_SIZE else []
    for label in domain.split("."):
        errors += _part_errors(field, domain, label, dns_label_errors(label))
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        errors.append(invalid(field, domain, detail))
    for label in path.split("."):
        errors += _part_errors(field, path, label, dns_subdomain_errors(label))
    return errors + ([too_long(field, _PATH_SIZE)] if len(path) > _PATH_SIZE else [])


def _part_errors(field: str, whole: str, label: str, problems: list[str]) -> list[FieldError]:
    shown = encode_json(label).decode()
    return [invalid(field, whole, f"validating label {shown}: {problem}") for problem in problems]


def bundle_name_errors(name: str) -> list[str]:
    """Return what keeps a text from being the name of a ClusterTrustBundle, which begins with that of its signer."""
    return dns_subdomain_errors(name.rpartition(":")[2])
