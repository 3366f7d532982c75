"""The addresses that tenants may name.

`guard` checks every address of a name, after resolution and before connecting. Invariant: loopback, link-local,
multicast and unspecified addresses, the metadata services of clouds and this machine's own addresses are refused in
every spelling (also embedded in IPv6) unless the operator opened their network; our own listeners are never opened.
Private networks (RFC 1918) are where a cell's webhooks live, and stay callable.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # most clouds
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure's wire server
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::/32",  # Amazon
        "fd20:ce::254/128",  # Google
    )
)
#: Linux connects to itself for all of 0.0.0.0/8; 240.0.0.0/4 holds the broadcast address.
_THIS_NETWORK, _RESERVED = ip_network("0.0.0.0/8"), ip_network("240.0.0.0/4")
_COMPATIBLE, _NAT64 = ip_network("::/96"), ip_network("64:ff9b::/96")
#: A documentation address: it can be bound only where the kernel allows any address.
_UNASSIGNED = "192.0.2.1"


class Policy(msgspec.Struct, frozen=True):
    """The operator's settings: networks allowed in addition, and the (address, port) pairs this shard listens on.

    An unspecified address stands for every address of the machine.
    """

    allowed: tuple[Network, ...] = ()
    listening: tuple[tuple[Address, int], ...] = ()

    def refusal(self, text: str, port: int) -> str:
        """The reason why an address must not be called; empty if it may. `text` is numeric, as resolvers return it."""
        address = _parsed(text.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        for form in (mapped or address, *embedded(address)):
            if reason := self._refusal(form, port):
                return reason
        return ""

    def _refusal(self, address: Address, port: int) -> str:
        if any(own_port == port and _covers(own, address) for own, own_port in self.listening):
            return "is an address of this server"
        if any(address in network for network in self.allowed):
            return ""
        return kind_of(address) or ("is an address of this machine" if is_own(address) else "")


def policy(allowed: str = "", listening: tuple[tuple[str, int], ...] = ()) -> Policy:
    """The policy of comma-separated networks. Raises ValueError for a malformed one."""
    networks = tuple(ip_network(part.strip()) for part in allowed.split(",") if part.strip())
    return Policy(networks, tuple((ip_address(address), port) for address, port in listening))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Address:
    return ip_address(text)


def kind_of(address: Address) -> str:
    """The kind of an address that must not be named; empty for others."""
    if address.is_loopback:
        return "is a loopback address"
    if any(address in network for network in _METADATA):
        return "is a link-local or metadata address"
    if address.is_link_local:
        return "is a link-local address"
    if address.is_multicast:
        return "is a multicast address"
    if address.is_unspecified or address in _THIS_NETWORK:
        return "is an unspecified address"
    return "is a reserved address" if address in _RESERVED else ""


def embedded(address: Address) -> list[IPv4Address]:
    """IPv4 addresses embedded in an IPv6 address, which a translator or the kernel would connect to."""
    if isinstance(address, IPv4Address):
        return []
    found = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


def is_own(address: Address) -> bool:
    """Whether the address is one of this machine's: only those can be bound.

    Always false where the kernel binds any address (`ip_nonlocal_bind`).
    """
    return not _binds_anything() and _binds(str(address), address.version)


@lru_cache(maxsize=1)
def _binds_anything() -> bool:
    return _binds(_UNASSIGNED, 4)


def _binds(address: str, version: int) -> bool:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _covers(own: Address, address: Address) -> bool:
    if own.is_unspecified:
        return address.is_loopback or address.is_unspecified or is_own(address)
    return own == address
