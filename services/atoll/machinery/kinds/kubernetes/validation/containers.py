"""Containers of a PodSpec: regular, initial and ephemeral ones."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.environment import environment
from atoll.machinery.kinds.kubernetes.validation.mounts import mounts
from atoll.machinery.kinds.kubernetes.validation.ports import container_ports, host_ports, own_host_ports
from atoll.machinery.kinds.kubernetes.validation.probes import lifecycle, probes
from atoll.machinery.kinds.kubernetes.validation.resources import requirements
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    names_of,
    needed,
    one_of,
    one_of_defaulted,
    required_label,
)
from atoll.machinery.kinds.kubernetes.validation.security import container_security
from atoll.machinery.kinds.kubernetes.validation.tolerated import Tolerated
from atoll.machinery.kinds.kubernetes.validation.volumes import PULL_POLICIES
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)

RESTART_POLICIES = ("Always", "Never", "OnFailure")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESIZED, _RESIZE_POLICIES = ("cpu", "memory"), ("NotRequired", "RestartContainer")
_MAX_RULES, _MAX_EXIT_CODES = 20, 255
_RULE_ACTIONS, _RULE_OPERATORS = ("Restart", "RestartAllContainers"), ("In", "NotIn")
_NOT_INITIAL = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
#: Fields that the container of a debugger does not have.
_NOT_IN_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
_PADDED = "must not have leading or trailing whitespace"


class Surroundings(msgspec.Struct, frozen=True):
    """What containers refer to in their pod."""

    volumes: Mapping[str, Object]
    claims: frozenset[str]
    grace_s: int | None
    os: str | None
    restart_policy: str
    in_user_namespace: bool
    tolerated: Tolerated


def containers(spec: Object, at: str, around: Surroundings) -> Errors:
    """Check all containers of a spec."""
    yield from _regular(spec, f"{at}.containers", around)
    yield from _initial(spec, f"{at}.initContainers", around)
    yield from _ephemeral(spec, f"{at}.ephemeralContainers", around)


def _regular(spec: Object, at: str, around: Surroundings) -> Errors:
    found, names = objects(spec, "containers"), set[str]()
    if spec.get("containers") in (None, []):
        yield required(at)
    for index, container in found:
        field, name = f"{at}[{index}]", text(container, "name")
        yield from _common(container, field, around)
        if name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
        yield from lifecycle(container, field, around.grace_s, around.os)
        yield from probes(container, field, around.grace_s)
        yield from _restarts(container, field)
    yield from host_ports(found, at)


def _initial(spec: Object, at: str, around: Surroundings) -> Errors:
    found, names = objects(spec, "initContainers"), names_of(spec, "containers")
    for index, container in found:
        field, name = f"{at}[{index}]", text(container, "name")
        yield from _common(container, field, around)
        yield from _restarts(container, field)
        if name in names:
            yield duplicate(f"{field}.name", name)
        if name:
            names.add(name)
        if container.get("restartPolicy") == "Always":
            yield from lifecycle(container, field, around.grace_s, around.os)
            yield from probes(container, field, around.grace_s)
            continue
        for part in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(part) is not None:
                yield forbidden(f"{field}.{part}", _NOT_INITIAL)
        for position, policy in objects(container, "resizePolicy"):
            if policy.get("restartPolicy") == "RestartContainer" and not around.tolerated.restarts:
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                part = f"{at}[{index}].resizePolicy[{position}].restartPolicy"
                yield invalid(part, "RestartContainer", detail)
    yield from own_host_ports(found, at)


def _ephemeral(spec: Object, at: str, around: Surroundings) -> Errors:
    if not items(spec, "ephemeralContainers"):
        return
    others = names_of(spec, "containers") | names_of(spec, "initContainers")
    names = set(others)
    for index, container in objects(spec, "ephemeralContainers"):
        field, name, target = f"{at}[{index}]", text(container, "name"), text(container, "targetContainerName")
        yield from _common(container, field, around)
        yield from image_padding(container, field)
        if name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
        if target and target not in others:
            yield not_found(f"{field}.targetContainerName", target)
        for part in _NOT_IN_EPHEMERAL:
            if container.get(part) not in (None, {}):
                yield forbidden(f"{field}.{part}", _NOT_EPHEMERAL)
        for position, mount in objects(container, "volumeMounts"):
            for part in ("subPath", "subPathExpr"):
                if mount.get(part):
                    yield forbidden(f"{field}.volumeMounts[{position}].{part}", _NOT_EPHEMERAL)


def image_padding(container: Object, at: str) -> Errors:
    """Check that the name of an image has no space around it; templates may have some."""
    image = text(container, "image")
    if image != image.strip():
        yield invalid(f"{at}.image", image, _PADDED)


def _common(container: Object, at: str, around: Surroundings) -> Errors:
    yield from required_label(container, at, "name")
    yield from needed(container, at, "image")
    yield from one_of_defaulted(container, at, "terminationMessagePolicy", _MESSAGE_POLICIES)
    if container.get("ports"):
        yield from container_ports(container, at)
    if container.get("env") or container.get("envFrom"):
        yield from environment(container, at)
    yield from mounts(container, at, around.volumes)
    yield from one_of_defaulted(container, at, "imagePullPolicy", PULL_POLICIES)
    resources = mapping(container, "resources")
    partial_pages = around.tolerated.partial_pages
    yield from requirements(resources, f"{at}.resources", around.claims, partial_pages=partial_pages)
    yield from _resizes(container, f"{at}.resizePolicy", around.restart_policy)
    yield from container_security(container, at, in_user_namespace=around.in_user_namespace)


def _resizes(container: Object, at: str, restart_policy: str) -> Errors:
    seen = set[str]()
    for index, policy in objects(container, "resizePolicy"):
        name, action = text(policy, "resourceName"), text(policy, "restartPolicy")
        if name in seen:
            yield duplicate(f"{at}[{index}]", name)
        seen.add(name)
        for value, part, supported in ((name, "resourceName", _RESIZED), (action, "restartPolicy", _RESIZE_POLICIES)):
            if value and value not in supported:
                yield not_supported(at, value, supported)
            elif not value and part in policy:
                yield required(at)
        if restart_policy == "Never" and action != "NotRequired":
            yield invalid(at, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _restarts(container: Object, at: str) -> Errors:
    rules = objects(container, "restartPolicyRules")
    if container.get("restartPolicy") is None:
        if rules:
            yield required(f"{at}.restartPolicy", "must specify restartPolicy when restart rules are used")
            if at.rpartition(".")[2].startswith("initContainers"):
                return
    else:
        yield from one_of(container, at, "restartPolicy", RESTART_POLICIES)
    if len(rules) > _MAX_RULES:
        yield too_many(f"{at}.restartPolicyRules", len(rules), _MAX_RULES)
    for index, rule in rules:
        field = f"{at}.restartPolicyRules[{index}]"
        yield from one_of({"action": "", **rule}, field, "action", _RULE_ACTIONS)
        codes = rule.get("exitCodes")
        if not isinstance(codes, dict):
            yield required(f"{field}.exitCodes", "must be specified")
            continue
        yield from one_of({"operator": "", **codes}, f"{field}.exitCodes", "operator", _RULE_OPERATORS)
        if len(items(codes, "values")) > _MAX_EXIT_CODES:
            count = len(items(codes, "values"))
            yield too_many(f"{field}.exitCodes.values", count, _MAX_EXIT_CODES)
