"""Shard objects in `root`: registration, load and URLs of a shard.

`shard.registration` writes the results; scheduling reads `load_of`, controllers and views read the URLs. Pure.
Invariants: labels and annotations set or changed by other clients are kept (an annotation records the shard's last
values, and only those are removed); an up-to-date object yields None, so a restart without changes writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import ROUND_DOWN

import msgspec

from atoll.machinery.meta.conditions import TRUE, find, ordered, remove
from atoll.machinery.meta.names import ROOT, is_workspace_path
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, labels_of, spec_of, status_of
from atoll.machinery.meta.paths import HOME
from atoll.machinery.meta.quantity import parse
from atoll.machinery.meta.times import format_time, parse_time

#: kcp: selectors find a shard by its own name too.
NAME_LABEL = "name"
#: Any value takes the shard out of scheduling (kcp).
UNSCHEDULABLE = "experimental.core.kcp.io/unschedulable"
#: The labels that the shard set last, as JSON; and the store it runs on.
REGISTERED, STORE = "internal.atoll.dev/registered-labels", "internal.atoll.dev/store"
#: The public keys of its events, separated by commas (`stream.event_keys`).
EVENT_KEYS = "internal.atoll.dev/event-keys"
#: The paths of roots that a shard may hold, separated by commas; the operator of `root` writes it.
ROOTS = "shards.atoll.dev/roots"
#: Condition whose lastTransitionTime is the last sign of life.
HEARTBEAT = "Heartbeat"

#: Keys of status.capacity: bytes the store can hold, and what it does hold.
STORAGE = "storage"
USED_WORKSPACES, USED_OBJECTS, USED_STORAGE = (
    "used.atoll.dev/workspaces",
    "used.atoll.dev/objects",
    "used.atoll.dev/storage",
)
_SYSTEM = "system"
#: A load that differs by less is not worth a write before the next heartbeat is due.
_NEWS = 0.1


class OtherStore(Exception):
    """The Shard object of this name belongs to a shard that runs on another store."""


class Registration(msgspec.Struct, frozen=True):
    """A shard's registration. URLs have no trailing slash; `store` is the uid of its store, empty for the root shard,
    whose name no other shard can take."""

    name: str
    base_url: str
    external_url: str
    virtual_workspace_url: str
    store: str
    labels: Mapping[str, str] = {}
    event_keys: tuple[str, ...] = ()

    @property
    def spec(self) -> Object:
        return {
            "baseURL": self.base_url,
            "externalURL": self.external_url,
            "virtualWorkspaceURL": self.virtual_workspace_url,
        }

    @property
    def all_labels(self) -> dict[str, str]:
        return {**self.labels, NAME_LABEL: self.name}

    @property
    def notes(self) -> dict[str, str]:
        """The annotations with the shard's configured labels, store uid and keys; absent where these are empty."""
        noted = {REGISTERED: json.dumps(dict(self.labels), sort_keys=True)} if self.labels else {}
        if self.event_keys:
            noted[EVENT_KEYS] = ",".join(self.event_keys)
        return {**noted, **({STORE: self.store} if self.store else {})}


class Load(msgspec.Struct, frozen=True):
    """Used and total capacity of a shard. `heartbeat_s` is Unix time, 0 where there was none."""

    workspaces: int = 0
    objects: int = 0
    storage_bytes: int = 0
    capacity_bytes: int = 0
    heartbeat_s: float = 0.0


def roots_of(shard: Object) -> tuple[str, ...]:
    """Return the paths of the roots that a Shard may hold."""
    return root_paths(annotations_of(shard).get(ROOTS, ""))


def root_paths(text: str) -> tuple[str, ...]:
    """Return the paths in the annotation ROOTS, without those that no root can have."""
    return tuple(each for path in text.split(",") if is_root_path(each := path.strip()))


def with_root(shard: Object, path: str) -> Object:
    """Return a Shard that may hold a root; the same object if it may already."""
    known = roots_of(shard)
    if path in known:
        return shard
    metadata = shard["metadata"]
    annotations = {**annotations_of(shard), ROOTS: ",".join([*known, path])}
    return {**shard, "metadata": {**metadata, "annotations": annotations}}


def is_root_path(path: str) -> bool:
    """Whether a path can be that of a root: several names, not below `root`, a home, or a system cluster."""
    first = path.partition(":")[0]
    return ":" in path and is_workspace_path(path) and first not in (ROOT, HOME, _SYSTEM)


def virtual_workspace_url(shard: Object) -> str:
    """Return the virtual workspace URL of a shard, without a trailing slash; "" where it is not set."""
    return str(spec_of(shard).get("virtualWorkspaceURL") or "").rstrip("/")


def new_shard(said: Registration) -> Object:
    """Build the object of a shard that registers for the first time."""
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "Shard",
        "metadata": {"name": said.name, "labels": said.all_labels, "annotations": said.notes},
        "spec": said.spec,
    }


def registered(stored: Object, said: Registration) -> Object | None:
    """Return the stored object with the registration applied; None without a change. Raises OtherStore."""
    check_store(stored, said.store)
    metadata = stored["metadata"]
    annotations = annotations_of(stored)
    others = {key: value for key, value in annotations.items() if key not in {REGISTERED, STORE, *said.notes}}
    result = {
        **stored,
        "metadata": {
            **metadata,
            "labels": _labels(labels_of(stored), _last(annotations), said),
            "annotations": {**others, **said.notes},
        },
        "spec": {**spec_of(stored), **said.spec},
    }
    return None if result == stored else result


def check_store(stored: Object, store: str) -> None:
    """Raise OtherStore if the Shard object belongs to a shard on another store."""
    metadata = stored["metadata"]
    if store and annotations_of(stored).get(STORE, store) != store:
        name = metadata["name"]
        raise OtherStore(f"shard {name} is registered from another store: delete the Shard object if that one is gone")


def _labels(standing: Mapping[str, str], last: Mapping[str, str], said: Registration) -> dict[str, str]:
    """Merge labels: the shard's own unless changed by others; own labels that are no longer configured are removed."""
    labels = dict(standing)
    wanted = said.all_labels
    for key, value in last.items():
        if key not in wanted and labels.get(key) == value:
            del labels[key]
    for key, value in wanted.items():
        if key == NAME_LABEL or labels.get(key, last.get(key, value)) == last.get(key, value):
            labels[key] = value
    return labels


def _last(annotations: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(annotations.get(REGISTERED, ""))
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def heartbeat_status(stored: Object, load: Load) -> Object:
    """Return the status of a Shard with this load and a heartbeat at load.heartbeat_s; other fields are kept."""
    status = status_of(stored)
    capacity = {
        **(status.get("capacity") or {}),
        STORAGE: str(load.capacity_bytes),
        USED_WORKSPACES: str(load.workspaces),
        USED_OBJECTS: str(load.objects),
        USED_STORAGE: str(load.storage_bytes),
    }
    beat = {"type": HEARTBEAT, "status": TRUE, "lastTransitionTime": format_time(int(load.heartbeat_s))}
    conditions = ordered([*remove(conditions_of(stored), HEARTBEAT), beat])
    return {**status, "capacity": capacity, "conditions": conditions}


def load_of(shard: Object) -> Load:
    """Return the load in a Shard object; an absent or invalid number is 0."""
    status = status_of(shard)
    capacity = status.get("capacity") or {}
    beat = find(conditions_of(shard), HEARTBEAT)
    at_s = parse_time(str(beat.get("lastTransitionTime", ""))) if beat is not None else None
    return Load(
        _number(capacity.get(USED_WORKSPACES)),
        _number(capacity.get(USED_OBJECTS)),
        _number(capacity.get(USED_STORAGE)),
        _number(capacity.get(STORAGE)),
        at_s or 0.0,
    )


def digest(shard: Object) -> bytes:
    """Return a digest of a Shard without its status."""
    metadata = shard["metadata"]
    said = (labels_of(shard), annotations_of(shard), metadata.get("deletionTimestamp", ""), spec_of(shard))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()


def is_news(before: Load, now: Load) -> bool:
    """Return whether a load changed enough to be written before the next heartbeat."""
    old = before.workspaces, before.objects, before.storage_bytes
    new = now.workspaces, now.objects, now.storage_bytes
    return any(abs(after - known) > _NEWS * max(known, 1) for known, after in zip(old, new, strict=True))


def _number(quantity: object) -> int:
    """Return a quantity as a whole number, at least 0."""
    if not isinstance(quantity, str | int):
        return 0
    try:
        return max(0, int(parse(quantity).to_integral_value(ROUND_DOWN)))
    except ValueError:
        return 0
