"""The health endpoints: named checks, all together or one by one, in kube-apiserver's format.

`documents` routes /healthz, /livez and /readyz here, with or without the name of a check. The cause of a failure goes
to the log, never to a client, who may be anonymous. Checks have kube-apiserver's names where they are the same (`ping`,
`shutdown`); `store` replaces `etcd`, and `controllers` replaces `informer-sync`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

import msgspec
import structlog

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Reply
from atoll.machinery.storage.contract import Store

log = structlog.get_logger()

TEXT = "text/plain; charset=utf-8"
_NOSNIFF = ("x-content-type-options", "nosniff")
_MAX_FIELDS = 1000

#: A health check: returns None if healthy, else the reason.
Check = Callable[[], str | None]


def ping() -> str | None:
    """Succeed whenever the process answers."""
    return None


def store_check(store: Store) -> Check:
    """Return a check that reads the current state."""

    def check() -> str | None:
        with store.snapshot() as snapshot:
            return None if snapshot.revision >= 0 else "the store has no revision"

    return check


class Notice:
    """A check whose failure is listed, and fails when it is named, but leaves the endpoint as a whole healthy."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def __call__(self) -> str | None:
        return self._check()


class CheckResult(msgspec.Struct, frozen=True):
    """What a check of another process found; `reason` None: healthy."""

    reason: str | None
    is_notice: bool


class Health:
    """The checks of a process: `livez` and `healthz` run the initial ones, `readyz` also those added later."""

    def __init__(self, store: Store) -> None:
        self._live: dict[str, Check] = {"ping": ping, "store": store_check(store)}
        self._ready = dict(self._live)

    def add(self, name: str, check: Check) -> None:
        """Add a readiness check, or replace the one of that name."""
        self._ready[name] = check

    def results(self) -> dict[str, CheckResult]:
        """Run the checks that were added, for the processes that serve for this one."""
        added = {name: check for name, check in self._ready.items() if name not in self._live}
        return {name: CheckResult(_reason(check), isinstance(check, Notice)) for name, check in added.items()}

    @property
    def endpoints(self) -> Mapping[str, Mapping[str, Check]]:
        """Return the checks of each endpoint, in order."""
        return {"healthz": self._live, "livez": self._live, "readyz": self._ready}


def one(endpoint: str, checks: Mapping[str, Check], name: str) -> Reply:
    """Run a single check. Raises NotFound for an unknown name."""
    check = checks.get(name)
    if check is None:
        raise errors.not_served()
    if _wrong(endpoint, name, check):
        return _text(500, "internal server error: reason withheld\n")
    return _text(200, "ok")


def all_of(endpoint: str, checks: Mapping[str, Check], query: str) -> Reply:
    """Run the checks of an endpoint; `exclude` (repeatable) skips checks, `verbose` lists them."""
    asked = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    excluded = {value for name, value in asked if name == "exclude"}
    lines, failed, noticed = [], False, False
    for name, check in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
        elif _wrong(endpoint, name, check):
            is_notice = isinstance(check, Notice)
            failed, noticed = failed or not is_notice, noticed or is_notice
            lines.append(f"[-]{name} failed{' (not counted)' if is_notice else ''}: reason withheld")
        else:
            lines.append(f"[+]{name} ok")
    unknown = sorted(excluded.difference(checks))
    if unknown:
        names = ",".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    if not failed and not noticed and all(name != "verbose" for name, _ in asked):
        return _text(200, "ok")
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return _text(500 if failed else 200, "\n".join(lines) + "\n")


def _wrong(endpoint: str, name: str, check: Check) -> bool:
    reason = _reason(check)
    if reason is not None:
        log.warning("health check failed", endpoint=endpoint, check=name, reason=reason)
    return reason is not None


def _reason(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _text(status: int, text: str) -> Reply:
    return Reply(status, text.encode(), TEXT, (_NOSNIFF,))
