"""IP addresses and ranges: what Kubernetes takes in its old fields and, stricter, in new ones.

Invariant: an address with leading zeros, or IPv4 written as IPv6, is parsed as Go's old parser did, and reported.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from atoll.machinery.kinds.kubernetes.validation.rules import Errors
from atoll.machinery.schema.fielderrors import invalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_SIZE = 64
_ZEROS = re.compile(r"(?<![\w:])0+(?=\d)", re.ASCII)
_IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def parse_address(value: str) -> Address | None:
    """Return an address; IPv4 written as IPv6 is IPv4. None for another text."""
    if len(value) > _MAX_SIZE or "%" in value:
        return None
    try:
        found = ipaddress.ip_address(value if ":" in value else _ZEROS.sub("", value))
    except ValueError:
        return None
    return (found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None) or found


def parse_network(value: str) -> Network | None:
    """Return a range; bits behind its prefix are dropped. None for another text."""
    address, slash, size = value.partition("/")
    found = parse_address(address)
    if found is None or not slash or not re.fullmatch(r"[0-9]{1,3}", size):
        return None
    bits = int(size)
    if isinstance(found, ipaddress.IPv4Address) and ":" in address:
        bits -= 96
    try:
        return ipaddress.ip_network(f"{found}/{bits}", strict=False)
    except ValueError:
        return None


def is_ipv6(value: str) -> bool:
    """Report whether a text is an address of IPv6."""
    return isinstance(parse_address(value), ipaddress.IPv6Address)


def are_dual(values: Collection[str]) -> bool | None:
    """Report whether there is an address of each family; None if one is not an address."""
    found = [parse_address(value) for value in values]
    if None in found:
        return None
    return {each.version for each in found if each is not None} == {4, 6}


def address_errors(value: object, field: str, old: Collection[object] = ()) -> Errors:
    """Check an address in a field that took more in former versions; what was there before passes."""
    if not isinstance(value, str) or value in old:
        return
    found = parse_address(value)
    if found is None:
        yield invalid(field, value, _IP_TEXT)
    elif ":" not in value and str(found) != value:
        yield invalid(field, value, "must not have leading 0s")
    elif ":" in value and found.version == 4:
        yield invalid(field, value, "must not be an IPv4-mapped IPv6 address")


def network_errors(value: object, field: str, old: Collection[object] = ()) -> Errors:
    """Check a range in a field that took more in former versions; what was there before passes."""
    if not isinstance(value, str) or value in old:
        return
    found = parse_network(value)
    address, _, size = value.partition("/")
    if found is None:
        yield invalid(field, value, _CIDR_TEXT)
    elif (":" not in address and str(parse_address(address)) != address) or (len(size) > 1 and size[0] == "0"):
        yield invalid(field, value, "must not have leading 0s in IP or prefix length")
    elif ":" in address and found.version == 4:
        yield invalid(field, value, "must not have an IPv4-mapped IPv6 address")
    elif parse_address(address) != found.network_address:
        yield invalid(field, value, "must not have bits set beyond the prefix length")


def canonical_address_errors(value: object, field: str) -> Errors:
    """Check an address that has to be in canonical form."""
    errors = list(address_errors(value, field))
    yield from errors
    if isinstance(value, str) and not errors and value != str(parse_address(value)):
        yield invalid(field, value, f'must be in canonical form ("{parse_address(value)}")')


def canonical_network_errors(value: object, field: str) -> Errors:
    """Check a range that has to be in canonical form."""
    errors = list(network_errors(value, field))
    yield from errors
    if isinstance(value, str) and not errors and value != str(parse_network(value)):
        yield invalid(field, value, f'must be in canonical form ("{parse_network(value)}")')


def endpoint_errors(value: object, field: str) -> Errors:
    """Check that traffic may be sent to an address from another machine."""
    if not isinstance(value, str):
        return
    found = parse_address(value)
    if found is None:
        yield invalid(field, value, "must be a valid IP address")
        return
    if found.is_unspecified:
        yield invalid(field, value, f"may not be unspecified ({value})")
    if found.is_loopback:
        yield invalid(field, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if found.is_link_local:
        yield invalid(field, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if found in (_LOCAL_GROUPS if found.version == 4 else _LOCAL_GROUPS_6):
        yield invalid(field, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_LOCAL_GROUPS = ipaddress.ip_network("224.0.0.0/24")
_LOCAL_GROUPS_6 = ipaddress.ip_network("ff02::/16")
