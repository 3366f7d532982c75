"""Annotations of pods that stand for fields: profiles of seccomp and AppArmor, tolerations, costs of a deletion."""

from __future__ import annotations

import re

import msgspec

from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kubernetes.validation.paths import descending
from atoll.machinery.kinds.kubernetes.validation.rules import Errors
from atoll.machinery.kinds.kubernetes.validation.scheduling import tolerations
from atoll.machinery.kinds.kubernetes.validation.tolerated import containers_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import forbidden, invalid, quote

MIRROR, DELETION_COST = "kubernetes.io/config.mirror", "controller.kubernetes.io/pod-deletion-cost"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_DEFAULT_SECCOMP = ("runtime/default", "docker/default")
_COST = re.compile(r"(-?[0-9]+|0)\Z", re.ASCII)


def cost_is_valid(annotations: Object) -> bool:
    """Report whether the cost of a deletion is a number of 32 bits."""
    value = annotations.get(DELETION_COST, "0")
    if not isinstance(value, str) or not _COST.match(value) or len(value) > 12:
        return False
    return not (value[0] == "0" and value != "0") and -(2**31) <= int(value) < 2**31


def pod_annotations(annotations: Object, spec: Object, at: str, *, any_cost: bool = False) -> Errors:
    """Check the annotations that mean something for the pod with this spec."""
    if MIRROR in annotations and not text(spec, "nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"{at}[{MIRROR}]", annotations[MIRROR], detail)
    if text(annotations, _TOLERATIONS):
        yield from _tolerations(annotations[_TOLERATIONS], at)
    if not any_cost and not cost_is_valid(annotations):
        yield invalid(f"{at}[{DELETION_COST}]", annotations[DELETION_COST], "must be a 32bit integer")
    names = set[str]()
    for key, value in annotations.items():
        if key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            yield from _seccomp(value, f"{at}.{key}")
        if key.startswith(_APPARMOR):
            names = names or {text(container, "name") for _, container in containers_of(spec, "")}
            name = key.removeprefix(_APPARMOR)
            if name not in names:
                yield invalid(f"{at}[{key}]", name, "container not found")
            if value not in ("", "runtime/default", "unconfined") and not str(value).startswith(_LOCALHOST):
                yield invalid(f"{at}[{key}]", value, f"invalid AppArmor profile name: {quote(str(value))}")


def _tolerations(value: str, at: str) -> Errors:
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError):
        found = None
    if not isinstance(found, list):
        yield invalid(at, _TOLERATIONS, "not a list of tolerations in JSON")
        return
    values = [(index, each) for index, each in enumerate(found) if isinstance(each, dict)]
    yield from tolerations(values, f"{at}.{_TOLERATIONS}")


def _seccomp(value: object, field: str) -> Errors:
    profile = value if isinstance(value, str) else ""
    if profile in (*_DEFAULT_SECCOMP, "unconfined"):
        return
    if profile.startswith(_LOCALHOST):
        yield from descending(profile.removeprefix(_LOCALHOST), field)
    else:
        yield invalid(field, profile, "must be a valid seccomp profile")


def annotation_profiles(annotations: Object, spec: Object, at: str) -> Errors:
    """Check that profiles in annotations are those of the fields."""
    if not any(key.startswith((_SECCOMP_POD, _SECCOMP_CONTAINER, _APPARMOR)) for key in annotations):
        return
    of_pod = mapping(spec, "securityContext")
    if _SECCOMP_POD in annotations:
        profile = mapping(of_pod, "seccompProfile")
        yield from _match(annotations[_SECCOMP_POD], profile, f"{at}.securityContext.seccompProfile", "seccomp")
    for field, container in containers_of(spec, at):
        context, name = mapping(container, "securityContext"), text(container, "name")
        if (value := annotations.get(_SECCOMP_CONTAINER + name)) is not None:
            profile = mapping(context, "seccompProfile")
            yield from _match(value, profile, f"{field}.securityContext.seccompProfile", "seccomp")
        value = annotations.get(_APPARMOR + name)
        if value is not None and text(spec, "os", "name") != "windows":
            profile = mapping(context, "appArmorProfile") or mapping(of_pod, "appArmorProfile")
            yield from _match(value, profile, f"{field}.securityContext.appArmorProfile", "apparmor")


def _match(value: object, profile: Object, at: str, system: str) -> Errors:
    kind, annotation = text(profile, "type"), value if isinstance(value, str) else ""
    expected = {"Unconfined": ("unconfined",), "RuntimeDefault": _DEFAULT_SECCOMP[: 1 + (system == "seccomp")]}
    if kind == "Localhost":
        if not annotation.startswith(_LOCALHOST):
            yield forbidden(f"{at}.type", f"{system} type in annotation and field must match")
        elif annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            yield forbidden(f"{at}.localhostProfile", f"{system} profile in annotation and field must match")
    elif kind in expected and annotation not in expected[kind]:
        yield forbidden(f"{at}.type", f"{system} type in annotation and field must match")
