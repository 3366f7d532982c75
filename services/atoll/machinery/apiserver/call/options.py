"""Query parameters as typed options, with the checks and error texts of Kubernetes.

Verb handlers read these and never a raw query. Unknown parameters are ignored; unparsable values are a 400; invalid
combinations are a 422 of the options' kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from atoll.machinery.kinds.metadata import manager_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest, FieldError, Invalid, invalid

Query = Mapping[str, str]
_FALSE = ("false", "0")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = 1 << 63
_UINT64 = 1 << 64
_LONGEST_INTEGER, _LONGEST_REVISION = 64, 20
MAX_MANAGER = 128
#: Characters of a user agent that may hold the default field manager.
_AGENT = 1024
_FORBIDDEN = "FieldValueForbidden"
_DELETE_OPTIONS = "DeleteOptions"


class ListOptions(msgspec.Struct, frozen=True):
    """Options of list and watch. `resource_version` is -1 if absent.

    A limit below 1 is no limit. With a `timeout_s` of 0 the server chooses; below 0 a watch ends at once.
    """

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: int = -1
    match: str = ""
    timeout_s: int = 0
    bookmarks: bool = False
    initial_events: bool | None = None


class WriteOptions(msgspec.Struct, frozen=True):
    """Options of create, update and patch."""

    dry_run: bool = False
    manager: str = ""
    validation: str = "Warn"
    force: bool | None = None


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of delete and deletecollection; `policy` is empty, Background, Foreground or Orphan."""

    dry_run: bool = False
    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    #: `orphanDependents`, where the client gave that instead of a policy.
    orphan: bool | None = None
    #: Finalizers that a controller has finished; they do not hold the object. Only in-process callers set it.
    served_finalizers: frozenset[str] = frozenset()

    def given(self) -> Object:
        """Return what is given, as fields of DeleteOptions."""
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        found = {
            "gracePeriodSeconds": self.grace_period_s,
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "orphanDependents": self.orphan,
            "propagationPolicy": (self.policy or None) if self.orphan is None else None,
            "dryRun": ["All"] if self.dry_run else None,
        }
        return {name: value for name, value in found.items() if value is not None}


def integer(query: Query, name: str) -> int:
    """Return a 64-bit integer parameter, 0 if absent. Raises BadRequest with the text of Go's parser."""
    text = query.get(name)
    if text is None:
        return 0
    if len(text) > _LONGEST_INTEGER or not _INTEGER.fullmatch(text):
        raise BadRequest(f'strconv.ParseInt: parsing "{text[:_LONGEST_INTEGER]}": invalid syntax')
    number = int(text)
    if not -_INT64 <= number < _INT64:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def boolean(query: Query, name: str) -> bool | None:
    """Return a boolean parameter, None if absent. As in Kubernetes, only `false` and `0` are false."""
    text = query.get(name)
    return None if text is None else text.lower() not in _FALSE


def resource_version(query: Query) -> int:
    """Return `resourceVersion`; -1 if absent or empty."""
    text = query.get("resourceVersion", "")
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_REVISION or int(text) >= _UINT64:
        raise BadRequest(f'invalid resource version "{text[:64]}": it must be a decimal number of 64 bits')
    return int(text)


def list_options(query: Query, *, watch: bool) -> ListOptions:
    """Parse options of a list or a watch. Raises BadRequest and Invalid (kind ListOptions.meta.k8s.io)."""
    options = ListOptions(
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        max(integer(query, "limit"), 0),
        query.get("continue", ""),
        resource_version(query),
        query.get("resourceVersionMatch", ""),
        integer(query, "timeoutSeconds"),
        boolean(query, "allowWatchBookmarks") or False,
        boolean(query, "sendInitialEvents"),
    )
    errors = _watch_errors(options) if watch else _list_errors(options)
    if errors:
        raise invalid("ListOptions.meta.k8s.io", "", errors)
    if not watch and options.continue_token and options.resource_version > 0:
        raise BadRequest("specifying resource version is not allowed when using continue")
    return options


def _forbidden(field: str, text: str) -> FieldError:
    return FieldError(_FORBIDDEN, field, f"Forbidden: {text}")


def _forbidden_match(text: str) -> FieldError:
    return _forbidden("resourceVersionMatch", f"resourceVersionMatch {text}")


def _unsupported_match(match: str, *supported: str) -> FieldError:
    values = ", ".join(f'"{value}"' for value in supported)
    detail = f'Unsupported value: "{match}": supported values: {values}'
    return FieldError("FieldValueNotSupported", "resourceVersionMatch", detail)


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = options.match
    if match and options.resource_version < 0:
        errors.append(_forbidden_match("is forbidden unless resourceVersion is provided"))
    if match and options.continue_token:
        errors.append(_forbidden_match("is forbidden when continue is provided"))
    if match not in {"", "Exact", "NotOlderThan"}:
        errors.append(_unsupported_match(match, "Exact", "NotOlderThan", ""))
    if match == "Exact" and options.resource_version == 0:
        errors.append(_forbidden_match('"exact" is forbidden for resourceVersion "0"'))
    if options.initial_events is not None:
        errors.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = options.match
    if options.initial_events is not None and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(_forbidden("resourceVersionMatch", text))
    if match and options.initial_events is None:
        errors.append(_forbidden_match("is forbidden for watch unless sendInitialEvents is provided"))
    if match not in {"", "NotOlderThan"}:
        errors.append(_unsupported_match(match, "NotOlderThan"))
    if match and options.continue_token:
        errors.append(_forbidden_match("is forbidden when continue is provided"))
    return errors


def dry_run(values: list[str], kind: str) -> bool:
    """Whether `dryRun` is set. Raises Invalid for a value other than `All`."""
    for value in values:
        if value != "All":
            detail = f'Unsupported value: "{value}": supported values: "All"'
            raise invalid(f"{kind}.meta.k8s.io", "", [FieldError("FieldValueNotSupported", "dryRun", detail)])
    return bool(values)


def write_options(query: Query, user_agent: str, kind: str) -> WriteOptions:
    """Parse options of create (`kind` CreateOptions), update and patch. The manager defaults to the user agent."""
    if not query:
        return WriteOptions(manager=default_manager(user_agent[:_AGENT]))
    manager = query.get("fieldManager", "")
    if problems := manager_errors(manager, "fieldManager"):
        raise invalid(f"{kind}.meta.k8s.io", "", problems)
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in {"Ignore", "Warn", "Strict"}:
        detail = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        raise invalid(f"{kind}.meta.k8s.io", "", [FieldError("FieldValueNotSupported", "fieldValidation", detail)])
    dry = dry_run([query["dryRun"]] if query.get("dryRun") else [], kind)
    return WriteOptions(dry, manager or default_manager(user_agent[:_AGENT]), validation, boolean(query, "force"))


@lru_cache(maxsize=512)
def default_manager(user_agent: str) -> str:
    """Return the default field manager: the user agent up to the first slash."""
    name = "".join(c for c in user_agent.partition("/")[0] if c.isprintable())
    return name.encode()[:MAX_MANAGER].decode(errors="ignore") or "unknown"


class _Preconditions(msgspec.Struct):
    uid: str | None = None
    resourceVersion: str | None = None


class _DeleteOptionsBody(msgspec.Struct):
    """Types of DeleteOptions; null means absent."""

    apiVersion: str | None = None
    kind: str | None = None
    dryRun: list[str] | None = None
    gracePeriodSeconds: int | None = None
    orphanDependents: bool | None = None
    preconditions: _Preconditions | None = None
    propagationPolicy: str | None = None
    ignoreStoreReadErrorWithClusterBreakingPotential: bool | None = None


def delete_options(query: Query) -> DeleteOptions:
    """Parse options of a delete from the query. Raises BadRequest, Invalid."""
    return _checked(
        _DeleteOptionsBody(
            dryRun=[query["dryRun"]] if query.get("dryRun") else None,
            gracePeriodSeconds=integer(query, "gracePeriodSeconds") if query.get("gracePeriodSeconds") else None,
            orphanDependents=boolean(query, "orphanDependents"),
            preconditions=_Preconditions(uid=query["uid"]) if query.get("uid") else None,
            propagationPolicy=query.get("propagationPolicy"),
        )
    )


def delete_options_of(body: Object, api_version: str) -> DeleteOptions:
    """Parse decoded DeleteOptions, in v1 or the `api_version` of the deleted kind. Raises BadRequest, Invalid."""
    try:
        source = msgspec.convert(body, _DeleteOptionsBody)
    except msgspec.ValidationError as error:
        text = str(error).replace("$.", "")
        raise BadRequest(f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: json: {text}') from error
    if source.kind not in {None, "", _DELETE_OPTIONS}:
        raise BadRequest(f"the body of a delete must be DeleteOptions, not {source.kind}")
    if source.apiVersion not in {None, "", "v1", "meta.k8s.io/v1", api_version}:
        raise BadRequest(f'no kind "{_DELETE_OPTIONS}" is registered for version "{source.apiVersion}"')
    return _checked(source)


def _checked(source: _DeleteOptionsBody) -> DeleteOptions:
    policy, orphan = source.propagationPolicy or "", source.orphanDependents
    if orphan is not None and policy:
        detail = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise _delete_invalid("FieldValueInvalid", "propagationPolicy", detail)
    if policy not in {"", "Background", "Foreground", "Orphan"}:
        supported = '"Background", "Foreground", "Orphan"'
        detail = f'Unsupported value: "{policy}": supported values: {supported}'
        raise _delete_invalid("FieldValueNotSupported", "propagationPolicy", detail)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = source.preconditions or _Preconditions()
    return DeleteOptions(
        dry_run(source.dryRun or [], _DELETE_OPTIONS),
        policy,
        preconditions.uid or "",
        preconditions.resourceVersion or "",
        source.gracePeriodSeconds,
        orphan,
    )


def _delete_invalid(type: str, field: str, detail: str) -> Invalid:
    return invalid("DeleteOptions.meta.k8s.io", "", [FieldError(type, field, detail)])
