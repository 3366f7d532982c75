"""Services: addresses, node ports and what follows from a Service's type, as kube-apiserver gives them out on writes.

A number is chosen in `mutate`, from the records that `allocations` keeps; `validate` adds the writes of records that
follow from the object before and after, also where it goes. Invariant: a Service is stored in the transaction that
takes its numbers, and one that is released leaves none. Choices follow from the object's uid, so that a write that is
planned again, for a webhook's answer, chooses the same; after a conflict it sees what was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address

from atoll.machinery.apiserver.admission.chain import Plugin, Review
from atoll.machinery.apiserver.rest.write import is_released
from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes import service_fields as fields
from atoll.machinery.kinds.kubernetes.cluster_defaults import CIDRS
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.status import ApiError, FieldError, InternalError, invalid
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.fielderrors import invalid as invalid_value
from atoll.shard.admission.kubernetes.allocations import Allocations
from atoll.shard.admission.kubernetes.number_ranges import NumberRange, address_range, port_range
from atoll.shard.admission.kubernetes.served import every, is_kubernetes_own, is_written, neighbour

SERVICES = ("", "services")
NODE_PORTS = port_range(30000, 32767)
_TAKEN = "provided {} is already allocated"


class Services(Plugin):
    """Gives out what a Service needs, and keeps the records of what it holds."""

    resources = (SERVICES,)
    reviews_deletions = True

    def mutate(self, review: Review) -> None:
        if is_written(review) and isinstance(review.result.get("spec"), dict):
            _Allocation(review).run()

    def validate(self, review: Review) -> None:
        if not is_kubernetes_own(review.call.kind):
            return
        new = review.obj
        if new is not None and is_released(review.call.kind, new):
            new = None
        review.writes.extend(_records(review).changes(new, review.old, review.call.now))


def _records(review: Review) -> Allocations:
    return Allocations(review.view, review.call.kind.type, review.call.cluster)


class _Allocation:
    """One write of a Service."""

    def __init__(self, review: Review) -> None:
        self._review, self._records = review, _records(review)
        self._spec, self._old = review.result["spec"], spec_of(review.old) if review.old is not None else None
        self._seed = int(str(review.result["metadata"]["uid"]).replace("-", "") or "0", 16)
        self._chosen: set[str] = set()
        #: Continued by each port that is sought, so that a Service of many ports looks at each number once.
        self._ports = NODE_PORTS.order(self._seed)

    def run(self) -> None:
        spec, old = self._spec, self._old
        if old is not None:
            fields.keep_given(spec, old)
        fields.pair_addresses(spec, old)
        if fields.has_address(spec) and not (old is not None and fields.keeps_families(spec, old)):
            if not fields.is_consistent(spec):
                return
            if errors := fields.set_families(spec, old):
                raise self._invalid(errors)
            self._give_addresses()
        self._give_ports()
        self._give_health_port()
        if old is not None:
            fields.drop_of_old_type(spec, old)
            if text(spec, "type") != "LoadBalancer" and mapping(self._review.result, "status"):
                self._review.result["status"] = {**self._review.result["status"], "loadBalancer": {}}

    # --- addresses

    def _give_addresses(self) -> None:
        """Give each family that has none an address, and take the ones that are asked for."""
        spec, old = self._spec, self._old
        if fields.is_headless(spec) or (old is not None and fields.is_headless(old)):
            return
        known = items(old, "clusterIPs") if old is not None else []
        addresses = list(items(spec, "clusterIPs"))
        for index, family in enumerate(items(spec, "ipFamilies")):
            if index < len(addresses):
                if index >= len(known):
                    self._take_address(addresses[index])
            else:
                addresses.append(self._free_address(family))
        spec["clusterIP"], spec["clusterIPs"] = addresses[0], addresses

    def _ranges(self) -> Iterator[NumberRange]:
        """Yield the ranges of all ServiceCIDRs that are not being deleted."""
        found = every(self._review, neighbour(self._review, "networking.k8s.io", "servicecidrs"))
        cidrs = [cidr for each in found if not _goes(each) for cidr in items(each, "spec", "cidrs")]
        for cidr in cidrs if found else CIDRS:
            with suppress(ValueError):
                yield address_range(cidr)

    def _take_address(self, address: str) -> None:
        number = ip_address(address)
        if not any(int(number) in each for each in self._ranges()):
            self._refuse_address(address, "the provided network does not match the current range")
        if not self._is_free(str(number)):
            self._refuse_address(address, _TAKEN.format("IP"))
        self._chosen.add(str(number))

    def _refuse_address(self, address: str, why: str) -> None:
        said = f"failed to allocate IP {address}: {why}"
        raise self._invalid([invalid_value("spec.clusterIPs", items(self._spec, "clusterIPs"), said)])

    def _free_address(self, family: str) -> str:
        found = self._free(each for each in self._ranges() if _family(each) == family)
        if not found:
            name = self._review.name
            raise _internal(f'failed to allocate a serviceIP for Service "{name}": range is full')
        return found

    # --- ports

    def _give_ports(self) -> None:
        """Give each port that has none a node port; those of a new Service with the same number share one."""
        spec, is_new = self._spec, self._old is None
        if text(spec, "type") not in ("NodePort", "LoadBalancer"):
            return
        kept = {*fields.node_ports(self._old)} if self._old is not None else set()
        shared: dict[int, int] = {}
        seen: set[tuple[int, int]] = set()
        for _, port in objects(spec, "ports") if is_new else ():
            if port.get("nodePort"):
                shared.setdefault(port["port"], port["nodePort"])
        for index, port in objects(spec, "ports"):
            number = port["port"] if is_new else 0
            wanted = port.get("nodePort") or shared.get(number, 0)
            if wanted and wanted not in kept and (wanted, number) not in seen:
                self._take_port(wanted, index)
            elif not wanted and fields.gives_ports(spec):
                wanted = self._free_port("failed to allocate a nodePort")
                if is_new:
                    shared[number] = wanted
            if wanted:
                port["nodePort"] = wanted
                seen.add((wanted, number))

    def _take_port(self, port: int, index: int) -> None:
        why = self._unavailable(port)
        if why:
            raise self._invalid([invalid_value(f"spec.ports[{index}].nodePort", port, why)])
        self._chosen.add(str(port))

    def _unavailable(self, port: int) -> str:
        if port not in NODE_PORTS:
            valid = f"{NODE_PORTS.first}-{NODE_PORTS.last}"
            return f"provided port is not in the valid range. The range of valid ports is {valid}"
        return "" if self._is_free(str(port)) else _TAKEN.format("port")

    def _free_port(self, failed: str) -> int:
        found = next(filter(self._is_free, self._ports), "")
        if not found:
            raise _internal(f"{failed}: range is full")
        self._chosen.add(found)
        return int(found)

    def _give_health_port(self) -> None:
        spec, old = self._spec, self._old
        if not fields.has_health_port(spec) or (old is not None and fields.has_health_port(old)):
            return
        asked = spec.get("healthCheckNodePort")
        if not asked:
            spec["healthCheckNodePort"] = self._free_port("failed to allocate a HealthCheck NodePort 0")
        elif why := self._unavailable(asked):
            raise _internal(f"failed to allocate requested HealthCheck NodePort {asked}: {why}")

    # --- both

    def _is_free(self, number: str) -> bool:
        checkpoint()
        return number not in self._chosen and self._records.is_free(number)

    def _free(self, ranges: Iterable[NumberRange]) -> str:
        """Return a free number and take it; empty if all are taken."""
        for each in ranges:
            for number in each.order(self._seed):
                if self._is_free(number):
                    self._chosen.add(number)
                    return number
        return ""

    def _invalid(self, errors: list[FieldError]) -> ApiError:
        return invalid(self._review.call.kind.group_kind, self._review.name, errors)


def _goes(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _family(numbers: NumberRange) -> str:
    return fields.family_of(numbers.text(numbers.first))


def _internal(said: str) -> InternalError:
    return InternalError(f"Internal error occurred: {said}")
