"""Query parameters as typed options, with Kubernetes' checks and texts.

Verb handlers read these and never a raw query. Unknown parameters are ignored; unparsable ones are 400;
combinations that mean nothing are 422 of the options' own kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest, FieldError, Invalid, invalid

Query = Mapping[str, str]
_TRUE, _FALSE = ("true", "1", "True", "t", "T", "TRUE"), ("false", "0", "False", "f", "F", "FALSE", "")
MAX_MANAGER = 128
#: As much of a user agent as names a manager.
_AGENT = 1024
_FORBIDDEN = "FieldValueForbidden"


class ListOptions(msgspec.Struct, frozen=True):
    """Options of list and watch. `resource_version` is -1 where none was given."""

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
    orphan_explicit: bool = False
    #: Finalizers that a controller of the system has served; they do not hold the object. Never a client's.
    served_finalizers: frozenset[str] = frozenset()


def integer(query: Query, name: str) -> int:
    """A non-negative integer parameter, 0 where absent."""
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})')
    return int(text)


def boolean(query: Query, name: str) -> bool | None:
    """A boolean parameter, None where absent."""
    text = query.get(name)
    if text is None:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise BadRequest(f'strconv.ParseBool: parsing "{text}": invalid syntax ({name})')


def resource_version(query: Query) -> int:
    """`resourceVersion`; -1 where absent or empty."""
    text = query.get("resourceVersion", "")
    if not text:
        return -1
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise BadRequest(f'invalid resource version "{text}": it must be a decimal number')
    return int(text)


def list_options(query: Query, *, watch: bool) -> ListOptions:
    """Options of a list or a watch. Raises BadRequest and Invalid (kind ListOptions.meta.k8s.io)."""
    options = ListOptions(
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        integer(query, "limit"),
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


def _match_errors(options: ListOptions, allowed: tuple[str, ...]) -> list[FieldError]:
    errors: list[FieldError] = []
    if options.resource_version < 0 and allowed == ("Exact", "NotOlderThan"):
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(_forbidden("resourceVersionMatch", text))
    if options.continue_token:
        errors.append(_forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if options.match not in allowed:
        supported = ", ".join(f'"{value}"' for value in ("Exact", "NotOlderThan", ""))
        detail = f'Unsupported value: "{options.match}": supported values: {supported}'
        errors.append(FieldError("FieldValueNotSupported", "resourceVersionMatch", detail))
    if options.match == "Exact" and options.resource_version == 0:
        text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(_forbidden("resourceVersionMatch", text))
    return errors


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors = _match_errors(options, ("Exact", "NotOlderThan")) if options.match else []
    if options.initial_events is not None:
        errors.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    if options.initial_events is not None:
        if options.match != "NotOlderThan":
            text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            return [_forbidden("resourceVersionMatch", text)]
        return _match_errors(options, ("NotOlderThan",))
    if options.match:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        return [_forbidden("resourceVersionMatch", text)]
    return []


def dry_run(values: list[str], kind: str) -> bool:
    """Whether dryRun was asked for; `All` is the one legal value."""
    for value in values:
        if value != "All":
            detail = f'Unsupported value: "{value}": supported values: "All"'
            raise invalid(f"{kind}.meta.k8s.io", "", [FieldError("FieldValueNotSupported", "dryRun", detail)])
    return bool(values)


def write_options(query: Query, user_agent: str, kind: str) -> WriteOptions:
    """Options of create (`kind` CreateOptions), update and patch. The manager defaults to the user agent's name."""
    if not query:
        return WriteOptions(manager=default_manager(user_agent[:_AGENT]))
    manager = query.get("fieldManager", "")
    if len(manager) > MAX_MANAGER or not manager.isprintable():
        detail = f'Invalid value: "{manager[:MAX_MANAGER]}": must be at most 128 printable characters'
        raise invalid(f"{kind}.meta.k8s.io", "", [FieldError("FieldValueInvalid", "fieldManager", detail)])
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in {"Ignore", "Warn", "Strict"}:
        detail = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        raise invalid(f"{kind}.meta.k8s.io", "", [FieldError("FieldValueNotSupported", "fieldValidation", detail)])
    dry = dry_run([query["dryRun"]] if query.get("dryRun") else [], kind)
    return WriteOptions(dry, manager or default_manager(user_agent[:_AGENT]), validation, boolean(query, "force"))


@lru_cache(maxsize=512)
def default_manager(user_agent: str) -> str:
    """The field manager of a client that names none: its user agent up to the first slash."""
    name = user_agent.partition("/")[0]
    return "".join(c for c in name if c.isprintable())[:MAX_MANAGER] or "unknown"


def delete_options(query: Query, body: Object | None) -> DeleteOptions:
    """Options of a delete: from the body, or from the query where the body is empty."""
    source: Object = body if body else _delete_query(query)
    policy = source.get("propagationPolicy") or ""
    orphan = source.get("orphanDependents")
    if orphan is not None and policy:
        detail = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise _delete_invalid("FieldValueInvalid", "propagationPolicy", detail)
    if policy not in {"", "Background", "Foreground", "Orphan"}:
        supported = '"Background", "Foreground", "Orphan"'
        detail = f'Unsupported value: "{policy}": supported values: {supported}'
        raise _delete_invalid("FieldValueNotSupported", "propagationPolicy", detail)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = source.get("preconditions") or {}
    return DeleteOptions(
        dry_run(list(source.get("dryRun") or []), "DeleteOptions"),
        policy,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        source.get("gracePeriodSeconds"),
        orphan is False,
    )


def _delete_invalid(type: str, field: str, detail: str) -> Invalid:
    return invalid("DeleteOptions.meta.k8s.io", "", [FieldError(type, field, detail)])


def _delete_query(query: Query) -> Object:
    source: Object = {"propagationPolicy": query.get("propagationPolicy", "")}
    orphan = boolean(query, "orphanDependents")
    if orphan is not None:
        source["orphanDependents"] = orphan
    if query.get("dryRun"):
        source["dryRun"] = [query["dryRun"]]
    if query.get("gracePeriodSeconds"):
        source["gracePeriodSeconds"] = integer(query, "gracePeriodSeconds")
    return source
