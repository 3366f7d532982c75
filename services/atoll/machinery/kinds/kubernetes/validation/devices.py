"""Rules that claims of devices and slices of them share: bounded lists, names of pools and attributes, ids, data.

A list that is too long has one error, and none of its items is checked. Invariant: time is linear in the object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from atoll.machinery.kinds.checks import invalid_values, items, mapping, text
from atoll.machinery.kinds.kubernetes.validation.addresses import parse_address, parse_network
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, label_key, one_of, present
from atoll.machinery.meta.labels import dns_subdomain_errors, label_value_errors
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.fielderrors import duplicate, invalid, required, too_long, too_many

#: An item of a list by its index.
T = TypeVar("T")
Items = list[tuple[int, T]]
Check = Callable[[T, str], Errors]

DOMAIN_SIZE, ID_SIZE = 63, 32
EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_POOL_SIZE, _DATA_SIZE, _MAX_CONDITIONS = 253, 10 * 1024, 4
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_IDENTIFIER_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER = re.compile(_IDENTIFIER_PATTERN + r"\Z")
_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    f"or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{_IDENTIFIER_PATTERN}')"
)
_ADDRESS_TEXT = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


def texts(obj: object, name: str) -> Items[str]:
    """Return index and value of the texts in a list; other items are skipped."""
    return [(index, item) for index, item in enumerate(items(obj, name)) if isinstance(item, str)]


def bounded(values: Items[T], field: str, limit: int, check: Check[T]) -> Errors:
    """Check the size of a list, then each of its items."""
    if len(values) > limit:
        yield too_many(field, len(values), limit)
        return
    for index, value in values:
        yield from check(value, f"{field}[{index}]")


def bounded_set(values: Items[T], field: str, limit: int, check: Check[T], key: Callable[[T], Hashable]) -> Errors:
    """Check the size of a list, each of its items, and that their keys differ."""
    yield from bounded(values, field, limit, check)
    if len(values) > limit:
        return
    seen = set[Hashable]()
    for index, value in values:
        found = key(value)
        if found in seen:
            yield duplicate(f"{field}[{index}]", found)
        seen.add(found)


def itself(value: str) -> str:
    """Return the key of a text in a set."""
    return value


def name_of(value: Object) -> str:
    """Return the key of a named object in a set."""
    return text(value, "name")


def device_of(value: Object) -> tuple[str, str, str, str | None]:
    """Return what tells a device, or a share of one, from others."""
    share = value.get("shareID")
    return text(value, "driver"), text(value, "pool"), text(value, "device"), share if isinstance(share, str) else None


def pool(obj: Object, at: str, name: str) -> Errors:
    """Check the name of a pool of devices."""
    value, field = text(obj, name), f"{at}.{name}"
    if not value:
        yield required(field)
        return
    if len(value.encode()) > _POOL_SIZE:
        yield too_long(field, _POOL_SIZE)
    for part in value.split("/"):
        yield from invalid_values(field, part, dns_subdomain_errors(part))


def share(obj: Object, at: str) -> Errors:
    """Check the id of a share of a device."""
    value = obj.get("shareID")
    if isinstance(value, str) and not _UID.match(value):
        detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`"
        yield invalid(f"{at}.shareID", value, f"{detail} with lowercase hexadecimal characters")


def qualified_name(name: str, field: str) -> Errors:
    """Check the name of an attribute or a capacity, which may have a domain in front."""
    domain, slash, identifier = name.partition("/")
    if "/" in identifier:
        return
    if slash and not domain:
        yield invalid(field, "", "the domain must not be empty")
    elif slash:
        if len(domain) > DOMAIN_SIZE:
            yield too_long(field, DOMAIN_SIZE)
        yield from invalid_values(field, domain, dns_subdomain_errors(domain.lower()))
    identifier = identifier if slash else domain
    if slash and not identifier:
        yield invalid(field, "", "the name must not be empty")
        return
    if len(identifier) > ID_SIZE:
        yield too_long(field, ID_SIZE)
    if not _IDENTIFIER.match(identifier):
        yield invalid(field, identifier, _IDENTIFIER_TEXT)


def full_name(obj: Object, at: str, name: str) -> Errors:
    """Check the name of an attribute that has to have a domain."""
    value, field = text(obj, name), f"{at}.{name}"
    yield from qualified_name(value, field)
    if "/" not in value:
        yield invalid(field, value, "a fully qualified name must be a domain and a name separated by a slash")


def json_object(value: Any, field: str, limit: int = _DATA_SIZE) -> Errors:
    """Check that a value of any type is a JSON object, of limited size."""
    if value is None:
        yield required(field)
    elif len(encode_json(value)) > limit:
        yield too_long(field, limit)
    elif not isinstance(value, dict):
        yield invalid(field, "<value omitted>", "must be a valid JSON object")


def taint(value: Object, at: str) -> Errors:
    """Check a taint of a device."""
    yield from label_key(f"{at}.key", value.get("key"))
    yield from _label_value(value, at)
    if value.get("effect") == "":
        yield required(f"{at}.effect")
    else:
        yield from one_of(value, at, "effect", EFFECTS)


def toleration(value: Object, at: str) -> Errors:
    """Check a toleration of taints of devices."""
    if text(value, "key"):
        yield from label_key(f"{at}.key", value["key"])
    operator = text(value, "operator") or "Equal"
    if operator == "Exists" and text(value, "value"):
        yield invalid(f"{at}.value", value["value"], "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from _label_value(value, at)
    yield from one_of({"operator": operator}, at, "operator", _OPERATORS)
    if text(value, "effect"):
        yield from one_of(value, at, "effect", EFFECTS)


def _label_value(value: Object, at: str) -> Errors:
    yield from invalid_values(f"{at}.value", text(value, "value"), label_value_errors(text(value, "value")))


def binding_conditions(obj: Object, at: str) -> Errors:
    """Check the conditions that let a device be bound, and those that end the attempt."""
    names = ("bindingConditions", "bindingFailureConditions")
    wanted, failed = (texts(obj, name) for name in names)
    for name, found in zip(names, (wanted, failed), strict=True):
        field, seen = f"{at}.{name}", set[str]()
        yield from bounded(found, field, _MAX_CONDITIONS, lambda value, place: label_key(place, value))
        for index, value in found:
            if value in seen:
                yield duplicate(f"{field}[{index}]", value)
            seen.add(value)
    known = {value for _, value in wanted}
    for index, value in failed:
        if value in known:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{at}.{names[1]}[{index}]", value, detail)
    if bool(wanted) != bool(failed):
        missing, there = names if failed else (names[1], names[0])
        yield invalid(f"{at}.{missing}", [], f"{missing} are required to use {there}")


def exactly_one(obj: Object, at: str, names: tuple[str, ...], detail: str) -> Errors:
    """Check that one of some fields is set: a text that is not empty, an object, or true."""
    chosen = [name for name in present(obj, names) if obj[name] not in ("", False)]
    if not chosen:
        yield required(at, detail)
    elif len(chosen) > 1:
        shown = ", ".join(f"`{name}`" for name in chosen)
        yield invalid(at, f"{{{shown}}}", f"{detail}, but multiple fields are set")


def interface_address(value: str, field: str) -> Errors:
    """Check an address of a network interface with the size of its network."""
    address, _, size = value.partition("/")
    network = parse_network(value)
    if network is None:
        yield invalid(field, value, _ADDRESS_TEXT)
        return
    canonical = f"{parse_address(address)}/{network.prefixlen}"
    if value != canonical or str(int(size)) != size:
        yield invalid(field, value, f'must be in canonical form ("{canonical}")')


def keyed(obj: Object, name: str, at: str, limit: int = DOMAIN_SIZE + 1 + ID_SIZE) -> list[tuple[str, str, Object]]:
    """Return key, path and value of the objects of a map; a long key is cut in the middle of its path."""
    found = ((key, f"{at}.{name}[{_cut(key, limit)}]", value) for key, value in mapping(obj, name).items())
    return [each for each in found if isinstance(each[2], dict)]


def _cut(key: str, limit: int) -> str:
    if len(key) <= limit:
        return key
    left = limit - len("...")
    return f"{key[: (left + 1) // 2]}...{key[len(key) - left // 2 :]}"
