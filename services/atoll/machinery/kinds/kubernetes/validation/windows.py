"""Options of pods for Windows, and what pods of each system may not have."""

from __future__ import annotations

import re

from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, matches_always
from atoll.machinery.meta.labels import dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_SPEC_SIZE_KIB, _DOMAIN_SIZE, _USER_SIZE = 64, 256, 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}\Z')
_DNS_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*\Z")
_BAD_USER = re.compile(r'["/\\:;|=,\+\*\?<>@\[\]]')
_DOTS = re.compile(r"[\. ]+\Z")

_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_POD_FIELDS = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_POD_CONTEXT_FIELDS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_FIELDS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
#: Fields whose false or empty value is as an absent one.
_PLAIN = frozenset({"hostPID", "hostIPC", "sysctls"})

Containers = list[tuple[str, Object]]


def windows_options(context: Object, at: str) -> Errors:
    """Check the options of a security context."""
    options = context.get("windowsOptions")
    if not isinstance(options, dict):
        return
    yield from matches_always(options, at, "gmsaCredentialSpecName", dns_subdomain_errors)
    spec, user = options.get("gmsaCredentialSpec"), options.get("runAsUserName")
    if spec == "":
        yield invalid(f"{at}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
    elif isinstance(spec, str) and len(spec.encode()) > _SPEC_SIZE_KIB * 1024:
        detail = f"gmsaCredentialSpec size must be under {_SPEC_SIZE_KIB} KiB"
        yield invalid(f"{at}.gmsaCredentialSpec", spec, detail)
    if isinstance(user, str):
        for detail in _user_problems(user):
            yield invalid(f"{at}.runAsUserName", user, f"runAsUserName{detail}")


def _user_problems(name: str) -> list[str]:
    if not name:
        return [" cannot be an empty string"]
    if _CONTROL.search(name):
        return [" cannot contain control characters"]
    if name.count("\\") > 1:
        return [" cannot contain more than one backslash"]
    domain, backslash, user = name.rpartition("\\")
    found = []
    if len(domain.encode()) >= _DOMAIN_SIZE:
        found.append(f"'s Domain length must be under {_DOMAIN_SIZE} characters")
    if backslash and not (_NETBIOS.match(domain) or _DNS.match(domain)):
        found.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        found.append("'s User cannot be empty")
    elif len(user.encode()) > _USER_SIZE:
        found.append(f"'s User length must not be longer than {_USER_SIZE} characters")
    if _DOTS.match(user):
        found.append("'s User cannot contain only periods or spaces")
    if _BAD_USER.search(user):
        found.append("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return found


def host_processes(spec: Object, at: str, containers: Containers) -> Errors:
    """Check that either all containers are processes of the node or none."""
    of_pod = mapping(spec, "securityContext", "windowsOptions").get("hostProcess")
    count = 0
    for field, container in containers:
        own = mapping(container, "securityContext", "windowsOptions").get("hostProcess")
        if isinstance(of_pod, bool) and isinstance(own, bool) and of_pod is not own:
            shown = str(of_pod).lower()
            detail = f"pod hostProcess value must be identical if both are specified, was {shown}"
            yield invalid(f"{field}.securityContext.windowsOptions.hostProcess", own, detail)
        count += (of_pod if own is None else own) is True
    if not count:
        return
    if count != len(containers):
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(at, "", detail)
    if spec.get("hostNetwork") is not True:
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid(f"{at}.hostNetwork", False, detail)


def operating_system(spec: Object, at: str, containers: Containers) -> Errors:
    """Check the system of a pod, and that the pod has nothing of another one."""
    os = spec.get("os")
    if not isinstance(os, dict):
        return
    name = text(os, "name")
    if not name:
        if "name" in os:
            yield required(f"{at}.os.name")
    elif name == "linux":
        for field, part in ((at, spec), *containers):
            if mapping(part, "securityContext").get("windowsOptions") is not None:
                detail = "windows options cannot be set for a linux pod"
                yield forbidden(f"{field}.securityContext.windowsOptions", detail)
    elif name == "windows":
        yield from _foreign(spec, at, _POD_FIELDS)
        yield from _foreign(mapping(spec, "securityContext"), f"{at}.securityContext", _POD_CONTEXT_FIELDS)
        for field, container in containers:
            context = mapping(container, "securityContext")
            yield from _foreign(context, f"{field}.securityContext", _CONTAINER_FIELDS)
    else:
        yield not_supported(f"{at}.os", name, ("linux", "windows"))


def _foreign(part: Object, at: str, names: tuple[str, ...]) -> Errors:
    for name in names:
        value = part.get(name)
        if value is not None and (value or name not in _PLAIN):
            yield forbidden(f"{at}.{name}", _NOT_ON_WINDOWS)
