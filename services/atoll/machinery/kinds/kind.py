"""The definition of a kind: one value per version, of the same type for built-in kinds, CRDs and bound APIs.

Verb handlers read nothing else about a kind. Built-in kinds are declared in this package; `custom` makes the others
from the versions of a CustomResourceDefinition or an APIResourceSchema. Invariant: values are immutable, and clusters
with the same content share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from atoll.machinery.kinds.conversion import Conversion, Convert
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: The groups whose kinds client-go has types of.
KUBERNETES_GROUPS = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "extensions",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    }
)
SUBRESOURCE_VERBS = ("get", "patch", "update")


class Column(msgspec.Struct, frozen=True):
    """One column of a Table. Types: string, integer, number, boolean, date. Columns with priority > 0 appear with -o
    wide only.

    `json_path` (no braces, leading dot) selects the cell of a kind without a `cells` function.
    """

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    json_path: str = ""


class Subresource(msgspec.Struct, frozen=True):
    """The discovery entry of `status`, `scale`, `finalize`, `approval` or `token`."""

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...] = SUBRESOURCE_VERBS


class Scale(msgspec.Struct, frozen=True):
    """The paths that the scale subresource reads and writes, dotted with a leading dot; label_selector may be empty.

    `selector` computes the text of the selector where no path has it.
    """

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""
    selector: Callable[[Object], str] | None = None


class Virtual(msgspec.Struct, frozen=True):
    """Cluster and name of the export of a kind that a virtual workspace serves instead of the store."""

    cluster: str
    export: str


class Schema(Protocol):
    """The schema of a kind; `machinery.schema` implements it."""

    @property
    def source(self) -> Object:
        """OpenAPI v3 schema, as published."""

    @property
    def definitions(self) -> Mapping[str, Object]:
        """The targets of its $refs."""

    @property
    def size_bytes(self) -> int:
        """Size of the source in JSON, as far as this schema alone holds it; 0 for built-in kinds."""

    def is_plain(self, obj: Object) -> bool:
        """Whether an object is known to be valid and to need defaults at most, as most of a write are."""

    def unknown_fields(self, obj: Object) -> list[str]:
        """Return paths that the schema does not declare, in document order (`spec.foo`, `spec.list[0].x`)."""

    def normalize(self, obj: Object) -> None:
        """Prune, then default, in place: every write does."""

    def prune(self, obj: Object) -> None: ...

    def default(self, obj: Object) -> None: ...

    def default_plain(self, obj: Object) -> None:
        """Set the defaults of an object that `is_plain`, which needs nothing else."""

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """Return all violations; with `old`, unchanged subtrees are skipped (ratcheting)."""


class ValidationResult(msgspec.Struct, frozen=True):
    """The result of validation: errors that reject an object, and warnings for the client."""

    errors: list[FieldError]
    warnings: list[str] = []


class DeferredValidator(Protocol):
    """A check that may take long: evaluation of rules, or their compilation."""

    def __call__(
        self, obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
    ) -> ValidationResult:
        """Check an object after its other checks, which returned `errors`; `old` is None for a new object.

        Changes nothing. `pause` is called every few milliseconds at most, and ends the check by raising.
        """


def _no_change(obj: Object) -> None:
    return None


def _no_change_on_update(obj: Object, old: Object) -> None:
    return None


def _no_errors(obj: Object) -> list[FieldError]:
    return []


def _no_errors_on_update(obj: Object, old: Object) -> list[FieldError]:
    return []


def _is_not_held(obj: Object) -> bool:
    return False


def no_warnings(obj: Object) -> list[str]:
    """What most kinds say of their objects."""
    return []


@lru_cache(maxsize=4096)
def _type(group: str, plural: str, identity: str) -> ResourceType:
    """Return the same value for the same arguments: every request compares it."""
    return ResourceType(group, plural, identity)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind in one version.

    Hooks change `obj` in place and raise nothing; checks return field errors. Order of a write: decode,
    `prepare_create`/`prepare_update` (reset fields that clients may not set, normalise, default), default and prune by
    the schema, validate by the schema, `validate`/`validate_update`, `deferred_validator`.
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
    #: Subresources that Kubernetes has and a server without nodes has not.
    unserved: tuple[str, ...] = ()
    identity: str = CORE
    #: Set if no objects are stored: requests are forwarded to the endpoint of its export.
    virtual: Virtual | None = None
    #: Group and plural of the kind under which its objects are stored (events.k8s.io events are stored as core events).
    stored_as: tuple[str, str] | None = None
    storage_version: str = ""
    schema: Schema | None = None
    #: Component name in OpenAPI documents, e.g. `io.k8s.api.core.v1.ConfigMap`.
    schema_name: str = ""
    description: str = ""
    #: A field that sorts before `kind` holds whole objects of any kind.
    holds_objects: bool = False
    #: The server's own kind, not a definition's.
    builtin: bool = False
    #: metadata.generation: 1 at creation, +1 when anything outside metadata (and status) changes.
    generation: bool = False
    #: Whether a new object has one, and whether a change raises it.
    generation_at_creation: bool = True
    generation_counts: bool = True
    #: A change of annotations raises it too.
    annotations_count: bool = False
    has_status: bool = False
    #: A new object keeps the status that its client gives it.
    status_at_creation: bool = False
    #: Dotted paths that a write does not change, by subresource ("" for the object itself), for kinds that declare
    #: them. Default: status, and on /status everything except status.
    resets: Mapping[str, tuple[str, ...]] = {}
    #: What a write through a subresource takes of the body, given also the stored object; default: its status.
    merges: Mapping[str, Callable[[Object, Object], Object]] = {}
    update_creates: bool = False
    #: PUT without resourceVersion overwrites the latest; otherwise it is 422.
    unconditional_update: bool = False
    #: DELETE returns the object even if it is deleted at once.
    returns_deleted: bool = False
    #: `subdomain` | `label` | `path-segment`; for other values `validate` checks the name.
    name_rule: str = "subdomain"
    columns: tuple[Column, ...] = ()
    #: Cells for `columns`, or None to read each column's json_path. Takes the object and now in epoch seconds.
    cells: Callable[[Object, float], list[object]] | None = None
    #: Field selector labels in addition to metadata.name and metadata.namespace.
    field_labels: Mapping[str, Callable[[Object], str]] = {}
    prepare_create: Callable[[Object], None] = _no_change
    prepare_update: Callable[[Object, Object], None] = _no_change_on_update
    validate: Callable[[Object], list[FieldError]] = _no_errors
    validate_update: Callable[[Object, Object], list[FieldError]] = _no_errors_on_update
    #: Additional checks of a write through /status (for example, it may not approve a certificate request).
    validate_status: Callable[[Object, Object], list[FieldError]] = _no_errors_on_update
    #: By subresource, for a kind that checks a write through it otherwise than an update: instead of both.
    subresource_checks: Mapping[str, Callable[[Object, Object], list[FieldError]]] = {}
    #: Called last; may take long.
    deferred_validator: DeferredValidator | None = None
    warnings: Callable[[Object], list[str]] = no_warnings
    #: Seconds that a deleted object stays for who runs it, given those that the client asks for, never negative; None:
    #: its kind knows no such time.
    grace_period_s: Callable[[Object, int | None], int] | None = None
    #: Changes an object at the start of its deletion, if finalizers delay it (phase, conditions, finalizers).
    begin_deletion: Callable[[Object], None] = _no_change
    #: Whether something other than metadata.finalizers delays the deletion (a Namespace's spec.finalizers).
    held: Callable[[Object], bool] = _is_not_held
    #: A fixed warning for every request to this version (deprecation).
    deprecation: str = ""
    #: Conversion from the stored form to this version and back; None if they are the same.
    from_stored: Callable[[Object], Object] | None = None
    to_stored: Callable[[Object], Object] | None = None
    #: Content mark of its definition; watches end when it changes. Empty for built-in kinds.
    mark: str = ""
    #: Schemas of all versions of its definition by apiVersion; empty for built-in kinds.
    versions: Mapping[str, Schema] = {}
    #: Path of spec.replicas in each of them; empty for a version without scale.
    replicas: Mapping[str, str] = {}
    #: Conversion to another of these versions (field ownership is compared in its recorded version).
    convert: Convert | None = None
    #: Set if a webhook or rules convert: `from_stored` and `convert` then raise Unconverted until the result is
    #: available, and objects may be stored in the storage version only.
    conversion: Conversion | None = None
    #: Of a kind whose objects need no conversion for the reply: what converts them for admission, which may ask about
    #: them in another version.
    review_conversion: Conversion | None = None

    #: `v1` or `group/version`, as in objects. Derived, as is `type`: every request reads both.
    api_version: str = ""
    #: The type under which its objects are stored.
    type: ResourceType = ResourceType("", "", "")

    def __post_init__(self) -> None:
        set_field = msgspec.structs.force_setattr
        set_field(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        set_field(self, "type", _type(*(self.stored_as or (self.group, self.plural)), self.identity))

    @property
    def is_kubernetes(self) -> bool:
        """Whether it is in a group of Kubernetes' own API.

        Typed clients and kubectl know the kinds of these groups: they send strategic merge patches, and bodies in
        Kubernetes protobuf.
        """
        return self.builtin or self.group in KUBERNETES_GROUPS

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def list_kind_name(self) -> str:
        return self.list_kind or self.kind + "List"

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)
