"""`ip(text)`, `isIP(text)`, `ip.isCanonical(text)` and the functions of an address.

Part of `base`. Addresses with a zone and IPv4-mapped IPv6 addresses are rejected, so one address has one form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values.addresses import Address, parse_address
from atoll.machinery.cel.libraries.values.quoting import quote
from atoll.machinery.cel.types import BOOL, INT, STRING, OpaqueType

TYPE: Final = OpaqueType("net.IP")


class IP(KubernetesValue):
    """An address as a CEL value."""

    __slots__ = ("address",)
    cel_type = TYPE

    def __init__(self, address: Address) -> None:
        self.address = address

    def equals(self, other: IP) -> bool:
        return self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def cel_size(self) -> int:
        """Return the size in bytes, as costs count it."""
        return self.address.width // 8


def parse(text: str) -> IP:
    """Return the address of a text. Raises EvaluationError."""
    try:
        return IP(_parse(text))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _parse(text: str) -> Address:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise ValueError(f"IP Address {quote(text)} parse error during conversion from string: {error}") from None
    if address.zone:
        raise ValueError(f"IP address {quote(text)} with zone value is not allowed")
    if address.is_mapped:
        raise ValueError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _is_ip(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def _is_canonical(text: str) -> bool:
    return str(parse(text).address) == text


def _family(value: IP) -> int:
    return 4 if value.address.width == 32 else 6


def _to_string(value: IP) -> str:
    return str(value.address)


def _predicate(name: str, identifier: str, test: Callable[[Address], bool]) -> Function:
    def call(value: Any) -> bool:
        return test(value.address)

    return Function(name, (Overload(identifier, (TYPE,), BOOL, call, member=True),))


LIBRARY: Final = Library(
    "kubernetes.net.ip",
    (
        Function("ip", (Overload("string_to_ip", (STRING,), TYPE, parse),)),
        Function("isIP", (Overload("is_ip", (STRING,), BOOL, _is_ip),)),
        Function("ip.isCanonical", (Overload("ip_is_canonical", (STRING,), BOOL, _is_canonical),)),
        Function("family", (Overload("ip_family", (TYPE,), INT, _family, member=True),)),
        Function("string", (Overload("ip_to_string", (TYPE,), STRING, _to_string),)),
        _predicate("isUnspecified", "ip_is_unspecified", Address.is_unspecified),
        _predicate("isLoopback", "ip_is_loopback", Address.is_loopback),
        _predicate("isLinkLocalMulticast", "ip_is_link_local_multicast", Address.is_link_local_multicast),
        _predicate("isLinkLocalUnicast", "ip_is_link_local_unicast", Address.is_link_local_unicast),
        _predicate("isGlobalUnicast", "ip_is_global_unicast", Address.is_global_unicast),
    ),
    types=(TYPE,),
)
