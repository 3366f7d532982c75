"""Security contexts of pods and containers."""

from __future__ import annotations

import re

from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.paths import descending
from atoll.machinery.kinds.kubernetes.validation.rules import (
    MAX_INT32,
    Errors,
    identifiers,
    integer,
    not_empty,
    one_of,
    range_text,
    shorter,
)
from atoll.machinery.kinds.kubernetes.validation.windows import windows_options
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import duplicate, invalid, not_supported, required

PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL_PATTERN = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(_SYSCTL_PATTERN + r"\Z")
_SYSCTL_SIZE, _PROFILE_SIZE = 253, 4095
_SYSCTL_TEXT = f"must have at most {_SYSCTL_SIZE} characters and match regex ^{_SYSCTL_PATTERN}$"
_IPC_SYSCTLS = frozenset(
    "kernel." + name
    for name in ["sem", "shm", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "msg", "msgmax", "msgmnb", "msgmni"]
)
_SEPARATOR, _SWAPPED = re.compile(r"[./]"), str.maketrans("./", "/.")
_NO_PRIVILEGES = "cannot set `allowPrivilegeEscalation` to false and "


def container_security(container: Object, at: str, *, in_user_namespace: bool) -> Errors:
    """Check the security context of a container."""
    context = container.get("securityContext")
    if not isinstance(context, dict):
        return
    field = f"{at}.securityContext"
    yield from identifiers(context, field, "runAsUser", "runAsGroup")
    yield from one_of(context, field, "procMount", ("Default", "Unmasked"))
    if context.get("procMount") == "Unmasked" and not in_user_namespace:
        yield invalid(f"{field}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    yield from seccomp_profile(context, f"{field}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged") is True:
            yield invalid(field, context, f"{_NO_PRIVILEGES}`privileged` to true")
        for _ in (each for each in strings(context, "capabilities", "add") if each == "CAP_SYS_ADMIN"):
            yield invalid(field, context, f"{_NO_PRIVILEGES}`capabilities.Add` CAP_SYS_ADMIN")
    yield from windows_options(context, f"{field}.windowsOptions")
    yield from apparmor_profile(context, f"{field}.appArmorProfile")


def seccomp_profile(context: Object, at: str) -> Errors:
    """Check the profile of system calls in a security context."""
    profile = context.get("seccompProfile")
    if not isinstance(profile, dict):
        return
    kind, path = text(profile, "type"), profile.get("localhostProfile")
    if kind == "" and "type" in profile:
        yield required(f"{at}.type", "type is required when seccompProfile is set")
    elif kind:
        yield from one_of(profile, at, "type", PROFILE_TYPES)
    if kind == "Localhost":
        if path is None:
            yield required(f"{at}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            yield from descending(text(profile, "localhostProfile"), f"{at}.localhostProfile")
    elif path is not None:
        yield invalid(f"{at}.localhostProfile", profile, "can only be set when seccomp type is Localhost")


def apparmor_profile(context: Object, at: str) -> Errors:
    """Check the profile of AppArmor in a security context."""
    profile = context.get("appArmorProfile")
    if not isinstance(profile, dict):
        return
    kind, path, field = text(profile, "type"), profile.get("localhostProfile"), f"{at}.localhostProfile"
    if kind == "Localhost":
        if path is None or path == "":
            yield required(field, "must be set when AppArmor type is Localhost")
        elif isinstance(path, str) and path != path.strip():
            yield invalid(field, path, "must not be padded with whitespace")
        yield from shorter(profile, at, "localhostProfile", _PROFILE_SIZE)
    elif kind in PROFILE_TYPES:
        if path is not None:
            yield invalid(field, path, "can only be set when AppArmor type is Localhost")
    elif "type" in profile:
        if not kind:
            yield required(f"{at}.type", "type is required when appArmorProfile is set")
        else:
            yield not_supported(f"{at}.type", kind, PROFILE_TYPES)


def pod_security(spec: Object, at: str, *, recursive_only: bool, host_sysctls: bool) -> Errors:
    """Check the security context of a pod."""
    context = mapping(spec, "securityContext")
    if not context:
        return
    field = f"{at}.securityContext"
    yield from identifiers(context, field, "fsGroup", "runAsUser", "runAsGroup")
    for index, group in enumerate(items(context, "supplementalGroups")):
        if not 0 <= (integer(group) or 0) <= MAX_INT32:
            yield invalid(f"{field}.supplementalGroups[{index}]", group, range_text(0, MAX_INT32))
    if spec.get("hostPID") is True and spec.get("shareProcessNamespace") is True:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{field}.shareProcessNamespace", True, detail)
    yield from _sysctls(spec, context, f"{field}.sysctls", host_sysctls)
    yield from one_of(context, field, "fsGroupChangePolicy", ("Always", "OnRootMismatch"))
    yield from seccomp_profile(context, f"{field}.seccompProfile")
    yield from windows_options(context, f"{field}.windowsOptions")
    yield from apparmor_profile(context, f"{field}.appArmorProfile")
    yield from one_of(context, field, "supplementalGroupsPolicy", ("Merge", "Strict"))
    policies = ("Recursive",) if recursive_only else ("MountOption", "Recursive")
    yield from one_of(context, field, "seLinuxChangePolicy", policies)


def _sysctls(spec: Object, context: Object, at: str, host_sysctls: bool) -> Errors:
    names = set[str]()
    for index, sysctl in objects(context, "sysctls"):
        field, name = f"{at}[{index}].name", text(sysctl, "name")
        if not name:
            yield from not_empty(sysctl, f"{at}[{index}]", "name")
        elif len(name) > _SYSCTL_SIZE or not _SYSCTL.match(name):
            yield invalid(field, name, _SYSCTL_TEXT)
        elif name in names:
            yield duplicate(field, name)
        if not host_sysctls:
            yield from host_sysctl(spec, name, field)
        names.add(name)


def host_sysctl(spec: Object, name: str, field: str) -> Errors:
    """Check that a kernel parameter is not one of a namespace that the pod shares with the node."""
    first = _SEPARATOR.search(name)
    dotted = name.translate(_SWAPPED) if first and first[0] == "/" else name
    if spec.get("hostNetwork") is True and dotted.startswith("net."):
        yield invalid(field, name, "may not be specified when 'hostNetwork' is true")
    elif spec.get("hostIPC") is True and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
        yield invalid(field, name, "may not be specified when 'hostIPC' is true")
