"""Ranges of addresses and ports, and the order in which a free number is sought in one.

Kubernetes keeps the first numbers of a range for those who ask for one by name: others get them only when the rest is
taken. The search begins at a place drawn from a seed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_network

import msgspec

#: Numbers looked up for one that is free; a range in which so many in a row are taken is called full.
MAX_LOOKUPS = 4096


class NumberRange(msgspec.Struct, frozen=True):
    """Numbers `first` to `last`, of which the first `kept` are given out last; `text` makes one readable."""

    first: int
    last: int
    kept: int
    text: Callable[[int], str]

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def order(self, seed: int) -> Iterator[str]:
        """Yield the numbers in the order of the search, at most MAX_LOOKUPS."""
        left = MAX_LOOKUPS
        for first, last in ((self.first + self.kept, self.last), (self.first, self.first + self.kept - 1)):
            size = last - first + 1
            for step in range(min(size, left)):
                yield self.text(first + (seed + step) % size)
            left -= min(size, left)


def _kept(size: int, step: int, least: int, most: int) -> int:
    return 0 if size <= least else min(max(size // step, least), most)


def port_range(first: int, last: int) -> NumberRange:
    """Return a range of node ports."""
    return NumberRange(first, last, _kept(last - first + 1, 32, 16, 128), str)


def address_range(cidr: str) -> NumberRange:
    """Return the addresses that Services may have in a network. Raises ValueError."""
    network = ip_network(cidr, strict=False)
    is_ipv4 = network.version == 4
    first = int(network.network_address) + 1
    last = int(network.broadcast_address) - (1 if is_ipv4 else 0)
    make: type[IPv4Address] | type[IPv6Address] = IPv4Address if is_ipv4 else IPv6Address
    return NumberRange(first, last, _kept(last - first + 1, 16, 16, 256), lambda number: str(make(number)))
