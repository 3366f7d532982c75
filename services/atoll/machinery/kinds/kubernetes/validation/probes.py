"""Probes of containers, and what runs when they start and stop."""

from __future__ import annotations

from atoll.machinery.kinds.checks import invalid_values, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    header_name_errors,
    integer,
    not_negative,
    one_of_defaulted,
    port,
    port_number,
    present,
)
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import forbidden, invalid, not_supported, required

_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_BASE = [
    "ABRT",
    "ALRM",
    "BUS",
    "CHLD",
    "CLD",
    "CONT",
    "FPE",
    "HUP",
    "ILL",
    "INT",
    "IO",
    "IOT",
    "KILL",
    "PIPE",
    "POLL",
    "PROF",
    "PWR",
    "QUIT",
    "RTMAX",
    "RTMIN",
    "SEGV",
    "STKFLT",
    "STOP",
    "SYS",
    "TERM",
    "TRAP",
    "TSTP",
    "TTIN",
    "TTOU",
    "URG",
    "USR1",
    "USR2",
    "VTALRM",
    "WINCH",
    "XCPU",
    "XFSZ",
]
_LINUX_SIGNALS = sorted(
    [f"SIG{name}" for name in _BASE]
    + [f"SIGRTMIN+{number}" for number in range(1, 16)]
    + [f"SIGRTMAX-{number}" for number in range(1, 15)]
)
_WINDOWS_SIGNALS = ("SIGKILL", "SIGTERM")


def probes(container: Object, at: str, grace_s: int | None) -> Errors:
    """Check the three probes of a container."""
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if not isinstance(probe, dict):
            continue
        field = f"{at}.{name}"
        yield from _handler(probe, field, _PROBE_HANDLERS, grace_s)
        yield from not_negative(probe, field, *_NUMBERS)
        duration = integer(probe.get("terminationGracePeriodSeconds"))
        if duration is not None and duration <= 0:
            yield invalid(f"{field}.terminationGracePeriodSeconds", duration, "must be greater than 0")
        if name == "readinessProbe":
            if duration is not None:
                detail = "must not be set for readinessProbes"
                yield invalid(f"{field}.terminationGracePeriodSeconds", duration, detail)
        elif probe.get("successThreshold", 1) not in (0, 1):
            yield invalid(f"{field}.successThreshold", probe["successThreshold"], "must be 1")


def lifecycle(container: Object, at: str, grace_s: int | None, os: str | None) -> Errors:
    """Check what runs after the start and before the stop of a container."""
    hooks = container.get("lifecycle")
    if not isinstance(hooks, dict):
        return
    field = f"{at}.lifecycle"
    for name in ("postStart", "preStop"):
        if isinstance(hooks.get(name), dict):
            yield from _handler(hooks[name], f"{field}.{name}", _HOOK_HANDLERS, grace_s)
    signal = hooks.get("stopSignal")
    if not isinstance(signal, str):
        return
    field += ".stopSignal"
    if os is None:
        yield forbidden(field, "may not be set for containers with empty `spec.os.name`")
    elif os == "windows" and signal not in _WINDOWS_SIGNALS:
        yield not_supported(field, signal, _WINDOWS_SIGNALS)
    elif os == "linux" and signal not in _LINUX_SIGNALS:
        yield not_supported(field, signal, _LINUX_SIGNALS)


def _handler(handler: Object, at: str, kinds: tuple[str, ...], grace_s: int | None) -> Errors:
    found = present(handler, kinds)
    if not found:
        yield required(at, "must specify a handler type")
        return
    action, field = mapping(handler, found[0]), f"{at}.{found[0]}"
    match found[0]:
        case "exec":
            if not action.get("command"):
                yield required(f"{field}.command")
        case "httpGet":
            yield from _request(action, field)
        case "tcpSocket":
            yield from port(action.get("port"), f"{field}.port")
        case "grpc":
            yield from port_number(action.get("port"), f"{field}.port")
        case "sleep":
            yield from _sleep(action, field, grace_s)
    for name in found[1:]:
        yield forbidden(f"{at}.{name}", "may not specify more than 1 handler type")


def _request(action: Object, at: str) -> Errors:
    yield from port(action.get("port"), f"{at}.port")
    yield from one_of_defaulted(action, at, "scheme", ("HTTP", "HTTPS"))
    for _, header in objects(action, "httpHeaders"):
        name = text(header, "name")
        if "name" in header:
            yield from invalid_values(f"{at}.httpHeaders", name, header_name_errors(name))


def _sleep(action: Object, at: str, grace_s: int | None) -> Errors:
    seconds = integer(action.get("seconds"))
    if seconds is not None and grace_s is not None and not 0 <= seconds <= grace_s:
        yield invalid(at, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})")
