"""`ip(text)`, `isIP(text)`, `ip.isCanonical(text)` and what can be asked of an address.

Part of `base`. Addresses with a zone and IPv4 addresses in IPv6 form are refused, so that one address has one form.
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
    """An address as a value of CEL."""

    __slots__ = ("address",)
    cel_type = TYPE

    def __init__(self, address: Address) -> None:
        self.address = address

    def equals(self, other: IP) -> bool:
        return self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def cel_size(self) -> int:
        """Bytes, as costs count them."""
        return self.address.width // 8


def parse(text: str) -> IP:
    """The address of a text. Raises EvaluationError."""
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


def _asks(name: str, identifier: str, ask: Callable[[Address], bool]) -> Function:
    def call(value: Any) -> bool:
        return ask(value.address)

    return Function(name, (Overload(identifier, (TYPE,), BOOL, call, member=True),))


LIBRARY: Final = Library(
    "kubernetes.net.ip",
    (
        Function("ip", (Overload("string_to_ip", (STRING,), TYPE, parse),)),
        Function("isIP", (Overload("is_ip", (STRING,), BOOL, _is_ip),)),
        Function("ip.isCanonical", (Overload("ip_is_canonical", (STRING,), BOOL, _is_canonical),)),
        Function("family", (Overload("ip_family", (TYPE,), INT, _family, member=True),)),
        Function("string", (Overload("ip_to_string", (TYPE,), STRING, _to_string),)),
        _asks("isUnspecified", "ip_is_unspecified", Address.is_unspecified),
        _asks("isLoopback", "ip_is_loopback", Address.is_loopback),
        _asks("isLinkLocalMulticast", "ip_is_link_local_multicast", Address.is_link_local_multicast),
        _asks("isLinkLocalUnicast", "ip_is_link_local_unicast", Address.is_link_local_unicast),
        _asks("isGlobalUnicast", "ip_is_global_unicast", Address.is_global_unicast),
    ),
    types=(TYPE,),
)
