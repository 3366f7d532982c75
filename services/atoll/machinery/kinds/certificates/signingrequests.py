"""CertificateSigningRequests: immutable requests, approved through `/approval`, signed through `/status`.

Admission sets the requestor and checks the permission to approve and sign; this module checks the objects, and keeps
the two endpoints from doing each other's work.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kinds.binary import decoded, join_lines
from atoll.machinery.kinds.checks import ensure, mapping, number, objects, strings, text
from atoll.machinery.kinds.kind import Column, Kind, Subresource
from atoll.machinery.kinds.native import AGE, NAME, age_cell, builtin, name_cell, row, text_cell
from atoll.machinery.kinds.signers import signer_name_errors
from atoll.machinery.meta.durations import human_duration
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.process.certificate_requests import certificate_request_problem, certificates_problem
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, not_supported, required

GROUP = "certificates.k8s.io"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"

_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_OPPOSITE = {APPROVED: DENIED, DENIED: APPROVED}
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_SHORTEST_S = 600
_REQUESTOR = ("username", "uid", "groups", "extra")


def _prepare_create(obj: Object) -> None:
    spec = ensure(obj, "spec")
    join_lines(spec, "request")
    for name in _REQUESTOR:
        spec.pop(name, None)


def _prepare_update(obj: Object, old: Object) -> None:
    obj["spec"] = old["spec"]


def _validate(obj: Object) -> list[FieldError]:
    spec = mapping(obj, "spec")
    return [*_spec_errors(spec), *_signer_errors(text(spec, "signerName")), *_condition_errors(obj)]


def _spec_errors(spec: Object) -> Iterator[FieldError]:
    if "request" in spec and (problem := certificate_request_problem(decoded(spec["request"]) or b"")):
        yield invalid("spec.request", spec["request"], problem)
    usages, seen = strings(spec, "usages"), set()
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield not_supported(f"spec.usages[{index}]", usage, _USAGES)
        if usage in seen:
            yield duplicate(f"spec.usages[{index}]", usage)
        seen.add(usage)
    expiration_s = number(spec, "expirationSeconds")
    if expiration_s is not None and expiration_s < _SHORTEST_S:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", expiration_s, detail)


def _signer_errors(signer: str) -> list[FieldError]:
    field = "spec.signerName"
    if signer == _LEGACY_SIGNER:
        return [invalid(field, signer, "the legacy signerName is not allowed via this API version")]
    return signer_name_errors(signer, field)


def _condition_errors(obj: Object) -> list[FieldError]:
    field, errors, seen = "status.conditions", [], set[str]()
    for index, condition in objects(obj, "status", "conditions"):
        kind, status = text(condition, "type"), text(condition, "status")
        known = ("True",) if kind in (APPROVED, DENIED, FAILED) else ("False", "True", "Unknown")
        if not kind:
            errors.append(required(f"{field}[{index}].type"))
        if not status:
            errors.append(required(f"{field}[{index}].status"))
        elif status not in known:
            errors.append(not_supported(f"{field}[{index}].status", status, known))
        if kind in seen:
            errors.append(duplicate(f"{field}[{index}].type", kind))
        elif _OPPOSITE.get(kind) in seen:
            errors.append(invalid(field, kind, "Approved and Denied conditions are mutually exclusive"))
        seen.add(kind)
    return errors


def _condition(obj: Object, type_: str) -> Object | None:
    found = (item for _, item in objects(obj, "status", "conditions") if item.get("type") == type_)
    return next(found, None)


def _fixed(verb: str, type_: str) -> FieldError:
    return forbidden("status.conditions", f'updates may not {verb} a condition of type "{type_}"')


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Checks of every write: conditions and certificates are final."""
    errors = _condition_errors(obj)
    for type_ in (APPROVED, DENIED, FAILED):
        if _condition(old, type_) is not None and _condition(obj, type_) is None:
            errors.append(_fixed("remove", type_))
    return errors + _certificate_errors(obj, old)


def _certificate_errors(obj: Object, old: Object) -> list[FieldError]:
    certificate, before = mapping(obj, "status").get("certificate"), mapping(old, "status").get("certificate")
    if certificate == before:
        return []
    if before:
        return [forbidden("status.certificate", "updates may not modify existing certificate content")]
    problem = certificates_problem(decoded(certificate) or b"")
    return [invalid("status.certificate", "<certificate data>", problem)] if problem else []


def _validate_status(obj: Object, old: Object) -> list[FieldError]:
    """A write through /status neither approves nor denies, which needs another permission."""
    errors = []
    for type_ in (APPROVED, DENIED):
        now, before = _condition(obj, type_), _condition(old, type_)
        if now is not None and before is None:
            errors.append(_fixed("add", type_))
        elif now is not None and now != before:
            errors.append(_fixed("modify", type_))
    return errors


def _duration_cell(obj: Object, now_s: float) -> object:
    expiration_s = number(obj, "spec", "expirationSeconds")
    return "<none>" if expiration_s is None else human_duration(expiration_s)


def _condition_cell(obj: Object, now_s: float) -> object:
    types = {text(condition, "type") for _, condition in objects(obj, "status", "conditions")}
    decision = DENIED if DENIED in types else APPROVED if APPROVED in types else "Pending"
    failed = f",{FAILED}" if FAILED in types else ""
    issued = ",Issued" if mapping(obj, "status").get("certificate") else ""
    return decision + failed + issued


CERTIFICATESIGNINGREQUESTS = Kind(
    **builtin(GROUP, "CertificateSigningRequest", "certificatesigningrequests"),
    short_names=("csr",),
    namespaced=False,
    subresources=(
        Subresource("approval", "CertificateSigningRequest", GROUP, "v1"),
        Subresource("status", "CertificateSigningRequest", GROUP, "v1"),
    ),
    has_status=True,
    resets={
        "": ("spec", "status"),
        "status": ("spec", "status.conditions"),
        "approval": ("spec", "status.certificate"),
    },
    unconditional_update=True,
    # Kubernetes accepts any valid URL path segment here.
    name_rule="path-segment",
    columns=(
        NAME,
        AGE,
        Column("SignerName", description="Who shall sign."),
        Column("Requestor", description="Who asked."),
        Column("RequestedDuration", description="Wanted life of the certificate."),
        Column("Condition", description="How far it got."),
    ),
    cells=row(
        name_cell,
        age_cell,
        lambda obj, now_s: text(obj, "spec", "signerName") or "<none>",
        text_cell("spec", "username"),
        _duration_cell,
        _condition_cell,
    ),
    field_labels={"spec.signerName": lambda obj: text(obj, "spec", "signerName")},
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
)
