"""What a served kind is: one value a version, the same type for built-in kinds, CRDs and bound APIs.

Verb handlers know nothing else about a kind. Built-in ones are written in this package; `custom` makes them
from a CustomResourceDefinition's or APIResourceSchema's versions. Values are immutable and shared by every
cluster with the same content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from atoll.machinery.kinds.conversion import Conversion, Convert
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")


class Column(msgspec.Struct, frozen=True):
    """One column of a Table. Types: string, integer, number, boolean, date. priority > 0 only for -o wide.

    `json_path` (no braces, leading dot) gives the cell where the kind has no `cells` function.
    """

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    json_path: str = ""


class Subresource(msgspec.Struct, frozen=True):
    """`status`, `scale`, `finalize`, `approval`, `token`: what discovery says of it."""

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...] = SUBRESOURCE_VERBS


class Scale(msgspec.Struct, frozen=True):
    """Where the scale subresource reads and writes; dotted paths with leading dot, label selector optional."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


class Virtual(msgspec.Struct, frozen=True):
    """Of a kind that a virtual workspace serves, not the store: cluster and name of the export that says which."""

    cluster: str
    export: str


class Schema(Protocol):
    """What a kind needs of its schema; `machinery.schema` gives it."""

    @property
    def source(self) -> Object:
        """OpenAPI v3 schema, as published."""

    @property
    def definitions(self) -> Mapping[str, Object]:
        """What its $refs resolve to."""

    @property
    def size_bytes(self) -> int:
        """Size of the source in JSON, as far as it is held for this schema alone; 0 for built-in ones."""

    def unknown_fields(self, obj: Object) -> list[str]:
        """Paths that the schema does not declare, in document order (`spec.foo`, `spec.list[0].x`)."""

    def prune(self, obj: Object) -> None: ...

    def default(self, obj: Object) -> None: ...

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """Every violation; with `old`, subtrees that did not change are not judged again (ratcheting)."""


class Verdict(NamedTuple):
    """What a judge found: errors to refuse an object for, and warnings for its writer."""

    errors: list[FieldError]
    warnings: list[str]


class Judge(Protocol):
    """A check that may take long: rules that run, or that are compiled."""

    def __call__(
        self, obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
    ) -> Verdict:
        """Judge an object after its other checks, which found `errors`; `old` is None for a new one.

        Changes nothing. `pause` is called every few milliseconds at most, and ends the judging by raising.
        """


def _nothing(obj: Object) -> None:
    return None


def _nothing_on_update(obj: Object, old: Object) -> None:
    return None


def _no_errors(obj: Object) -> list[FieldError]:
    return []


def _no_errors_on_update(obj: Object, old: Object) -> list[FieldError]:
    return []


def _not_held(obj: Object) -> bool:
    return False


def _no_warnings(obj: Object) -> list[str]:
    return []


@lru_cache(maxsize=4096)
def _type(group: str, plural: str, identity: str) -> ResourceType:
    """The same value for the same words: every request compares it."""
    return ResourceType(group, plural, identity)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind in one version.

    Hooks change `obj` in place and raise nothing; checks return field errors. Order on a write: decode,
    `prepare_create`/`prepare_update` (wipe what the client may not set, fold, default), schema default and
    prune, schema validate, `validate`/`validate_update`, `judge`.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    scale: Scale | None = None
    identity: str = CORE
    #: Set where nothing is stored under it: requests go on to the endpoint that its export names.
    virtual: Virtual | None = None
    #: group and plural under which it is stored, if another kind's (events.k8s.io events live with core events).
    stored_as: tuple[str, str] | None = None
    storage_version: str = ""
    schema: Schema | None = None
    #: Component name in OpenAPI documents, e.g. `io.k8s.api.core.v1.ConfigMap`.
    schema_name: str = ""
    description: str = ""
    #: Built-in kinds take strategic merge patches and Kubernetes protobuf bodies.
    builtin: bool = False
    #: metadata.generation: 1 at creation, +1 when anything outside metadata (and status) changes.
    generation: bool = False
    has_status: bool = False
    #: By subresource ("" for the object itself), dotted paths that a write there leaves as they are, of kinds with a
    #: rule of their own. Others: status, and on /status all but status.
    resets: Mapping[str, tuple[str, ...]] = {}
    update_creates: bool = False
    #: PUT without resourceVersion overwrites the latest; otherwise it is 422.
    unconditional_update: bool = False
    #: DELETE answers the object even when it is gone at once.
    returns_deleted: bool = False
    #: `subdomain` | `label` | `path-segment`; anything else is checked by `validate`.
    name_rule: str = "subdomain"
    columns: tuple[Column, ...] = ()
    #: Cells for `columns`, or None to read each column's json_path. Takes the object and now in epoch seconds.
    cells: Callable[[Object, float], list[object]] | None = None
    #: Field selector labels beside metadata.name and metadata.namespace.
    field_labels: Mapping[str, Callable[[Object], str]] = {}
    prepare_create: Callable[[Object], None] = _nothing
    prepare_update: Callable[[Object, Object], None] = _nothing_on_update
    validate: Callable[[Object], list[FieldError]] = _no_errors
    validate_update: Callable[[Object, Object], list[FieldError]] = _no_errors_on_update
    #: What more holds for a write through /status (it may not approve a certificate request, for one).
    validate_status: Callable[[Object, Object], list[FieldError]] = _no_errors_on_update
    #: Asked last, and given time to run.
    judge: Judge | None = None
    warnings: Callable[[Object], list[str]] = _no_warnings
    #: Changes an object whose deletion begins and that something still holds (phase, conditions, finalizers).
    begin_deletion: Callable[[Object], None] = _nothing
    #: Whether something beside metadata.finalizers holds a deleted object (a Namespace's spec.finalizers).
    held: Callable[[Object], bool] = _not_held
    #: A fixed warning for every request to this version (deprecation).
    deprecation: str = ""
    #: Stored form to this version and back; None where the stored form is this version's own.
    from_stored: Callable[[Object], Object] | None = None
    to_stored: Callable[[Object], Object] | None = None
    #: Content mark of the definition it was made from; watches end when that changes. Empty for built-in kinds.
    mark: str = ""
    #: Schemas of all versions of its definition by apiVersion; empty for built-in kinds.
    versions: Mapping[str, Schema] = {}
    #: Path of the replicas in each of them, empty where a version has no scale.
    replicas: Mapping[str, str] = {}
    #: To another of these versions (field ownership is compared in the version it was recorded in).
    convert: Convert | None = None
    #: Set where a webhook converts: then `from_stored` and `convert` raise Unconverted for what was not fetched, and
    #: nothing may be stored in another version than this names.
    conversion: Conversion | None = None

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def type(self) -> ResourceType:
        """Under which type its objects are stored."""
        group, plural = self.stored_as or (self.group, self.plural)
        return _type(group, plural, self.identity)

    @property
    def list_kind_name(self) -> str:
        return self.list_kind or self.kind + "List"

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)
