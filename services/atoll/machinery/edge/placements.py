"""EdgePlacements as values: what goes down, what comes up, and the Locations where.

Controllers decode each EdgePlacement once and match with the result. Invariant: a `Placement` is wholly valid; an
object with any error has none, so a half of it never takes effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object, spec_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector
from atoll.machinery.meta.status import FieldError

ANY = "*"
_INVALID = "FieldValueInvalid"


class InvalidPlacement(Exception):
    """An EdgePlacement with errors, from before they were refused."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


class DownsyncTest(msgspec.Struct, frozen=True):
    """Criteria for objects that go down: all fields hold, of a field one value. An empty one holds for every object."""

    api_group: str | None = None
    resources: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    namespace_selectors: tuple[LabelSelector, ...] = ()
    object_names: frozenset[str] = frozenset()
    label_selectors: tuple[LabelSelector, ...] = ()

    def covers(self, group: str, resource: str) -> bool:
        """Whether objects of a kind can match at all."""
        return self.api_group in (None, group) and _allows(self.resources, resource)

    def overlaps(self, members: UpsyncSet) -> bool:
        """Whether an object of a set that comes up can match, by all but labels."""
        if self.api_group not in (None, members.api_group) or not _meets(self.resources, members.resources):
            return False
        # Objects without a namespace are of each set.
        namespaces = (*members.namespaces, "")
        return _meets(self.namespaces, namespaces) and _meets(self.object_names, members.names)

    def matches(self, ref: ObjectRef, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether an object matches. `namespace_labels` are those of its Namespace, None while there is none."""
        if not (self.covers(ref.group, ref.resource) and _allows(self.object_names, ref.name)):
            return False
        if not _allows(self.namespaces, ref.namespace):
            return False
        if self.label_selectors and not any(each.matches(labels) for each in self.label_selectors):
            return False
        if not self.namespace_selectors:
            return True
        # Cluster-scoped objects are tested with no labels.
        tested = namespace_labels if ref.namespace else {}
        return tested is not None and any(each.matches(tested) for each in self.namespace_selectors)


class UpsyncSet(msgspec.Struct, frozen=True, order=True):
    """Objects of edge clusters that come up. Lists are sorted and distinct, so equal sets are equal values."""

    api_group: str = ""
    resources: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def matches(self, ref: ObjectRef) -> bool:
        """Whether an object comes up. An empty list holds for none; namespaces count for namespaced objects alone."""
        if ref.group != self.api_group or not _lists(self.resources, ref.resource):
            return False
        return (not ref.namespace or _lists(self.namespaces, ref.namespace)) and _lists(self.names, ref.name)

    def as_object(self) -> Object:
        """Return the set as specs hold it."""
        obj: Object = {"apiGroup": self.api_group, "resources": list(self.resources)}
        return obj | {"namespaces": list(self.namespaces), "names": list(self.names)}


class Placement(msgspec.Struct, frozen=True):
    """A valid EdgePlacement of one workload workspace."""

    name: str
    selectors: tuple[LabelSelector, ...] = ()
    downsync: tuple[DownsyncTest, ...] = ()
    upsync: tuple[UpsyncSet, ...] = ()
    wants_singleton: bool = False

    def selects(self, ref: ObjectRef, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether an object goes down. What comes up does not."""
        if not any(test.matches(ref, labels, namespace_labels) for test in self.downsync):
            return False
        return not any(each.matches(ref) for each in self.upsync)


def _allows(values: frozenset[str], value: str) -> bool:
    return not values or value in values or ANY in values


def _meets(allowed: frozenset[str], listed: tuple[str, ...]) -> bool:
    """Whether a value of a set may be allowed."""
    return any(each == ANY or _allows(allowed, each) for each in listed)


def _lists(values: tuple[str, ...], value: str) -> bool:
    return value in values or ANY in values


def upsync_set(obj: Object) -> UpsyncSet:
    """Decode a member of `upsync`."""
    lists = (tuple(sorted(set(obj.get(field) or ()))) for field in ("resources", "namespaces", "names"))
    return UpsyncSet(obj.get("apiGroup") or "", *lists)


def placement_of(obj: Object) -> Placement:
    """Decode an EdgePlacement. Raises InvalidPlacement with each error and its field."""
    spec, errors = spec_of(obj), list[FieldError]()
    selectors = _selectors(spec.get("locationSelectors"), "spec.locationSelectors", errors)
    tests = []
    for index, test in enumerate(spec.get("downsync") or ()):
        tests.append(downsync_test(test, f"spec.downsync[{index}]", errors))
    for index, each in enumerate(spec.get("upsync") or ()):
        errors.extend(_wildcard_errors(each, ("resources", "namespaces", "names"), f"spec.upsync[{index}]"))
    if errors:
        raise InvalidPlacement(errors)
    upsync = tuple(sorted({upsync_set(each) for each in spec.get("upsync") or ()}))
    wants_singleton = bool(spec.get("wantSingletonReportedState"))
    return Placement(obj["metadata"]["name"], selectors, tuple(tests), upsync, wants_singleton)


def downsync_test(obj: Object, path: str, errors: list[FieldError]) -> DownsyncTest:
    """Decode a member of `downsync`; what is wrong with it is added to `errors`."""
    errors.extend(_wildcard_errors(obj, ("resources", "namespaces", "objectNames"), path))
    test = DownsyncTest(
        obj.get("apiGroup"),
        frozenset(obj.get("resources") or ()),
        frozenset(obj.get("namespaces") or ()),
        _selectors(obj.get("namespaceSelectors"), f"{path}.namespaceSelectors", errors),
        frozenset(obj.get("objectNames") or ()),
        _selectors(obj.get("labelSelectors"), f"{path}.labelSelectors", errors),
    )
    if not _discriminates(test):
        errors.append(FieldError(_INVALID, path, "Invalid value: at least one field must discriminate"))
    return test


def _discriminates(test: DownsyncTest) -> bool:
    if test.api_group is not None:
        return True
    if any(values and ANY not in values for values in (test.resources, test.namespaces, test.object_names)):
        return True
    lists = (test.namespace_selectors, test.label_selectors)
    return any(selectors and not any(each.matches_everything for each in selectors) for selectors in lists)


def _wildcard_errors(obj: Object, fields: Sequence[str], path: str) -> Iterator[FieldError]:
    for field in fields:
        values = set(obj.get(field) or ())
        if ANY in values and len(values) > 1:
            yield FieldError(_INVALID, f"{path}.{field}", 'Invalid value: "*" must be the only value')


def _selectors(objs: Sequence[Object] | None, path: str, errors: list[FieldError]) -> tuple[LabelSelector, ...]:
    compiled = []
    for index, obj in enumerate(objs or ()):
        try:
            compiled.append(compile_label_selector(obj))
        except SelectorError as error:
            errors.append(FieldError(_INVALID, f"{path}[{index}]", f"Invalid value: {error}"))
    return tuple(compiled)
