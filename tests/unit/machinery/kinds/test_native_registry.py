"""Discovery of the built-in kinds, and the columns that kubectl prints for them."""

import pytest

from atoll.machinery.kinds import registry, reviews
from atoll.machinery.kinds.kind import ALL_VERBS, Kind
from atoll.machinery.kinds.native_schemas import component

RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
CREATE = ("create",)
NO_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
EVENT_COLUMNS = (
    "Last Seen Type Reason Object Subobject* Source* Message First_Seen* Count* Name*".replace(" ", "|")
    .replace("Last|Seen", "Last Seen").replace("First_Seen", "First Seen")
)  # fmt: skip

# group, plural, kind, namespaced, short names, verbs, subresources, columns (* = only -o wide, :int = integer)
KINDS = [
    ("", "configmaps", "ConfigMap", True, "cm", ALL_VERBS, "", "Name|Data|Age"),
    ("", "events", "Event", True, "ev", ALL_VERBS, "", EVENT_COLUMNS),
    ("", "namespaces", "Namespace", False, "ns", NO_COLLECTION, "finalize status", "Name|Status|Age"),
    ("", "resourcequotas", "ResourceQuota", True, "quota", ALL_VERBS, "status", "Name|Request|Limit|Age"),
    ("", "secrets", "Secret", True, "", ALL_VERBS, "", "Name|Type|Data|Age"),
    ("", "serviceaccounts", "ServiceAccount", True, "sa", ALL_VERBS, "token", "Name|Age"),
    ("events.k8s.io", "events", "Event", True, "ev", ALL_VERBS, "", EVENT_COLUMNS),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", False, "", CREATE, "", ""),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", False, "", CREATE, "", ""),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", True, "", CREATE, "", ""),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, "", CREATE, "", ""),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, "", CREATE, "", ""),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", False, "", CREATE, "", ""),
    (
        "certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", False, "csr", ALL_VERBS,
        "approval status", "Name|Age|SignerName|Requestor|RequestedDuration|Condition",
    ),
    (
        RBAC, "clusterrolebindings", "ClusterRoleBinding", False, "", ALL_VERBS, "",
        "Name|Role|Age|Users*|Groups*|ServiceAccounts*",
    ),
    (RBAC, "clusterroles", "ClusterRole", False, "", ALL_VERBS, "", "Name|Created At:date"),
    (RBAC, "rolebindings", "RoleBinding", True, "", ALL_VERBS, "", "Name|Role|Age|Users*|Groups*|ServiceAccounts*"),
    (RBAC, "roles", "Role", True, "", ALL_VERBS, "", "Name|Created At:date"),
    (
        ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False, "", ALL_VERBS, "",
        "Name|Mutations:integer|ParamKind|Age",
    ),
    (
        ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False, "", ALL_VERBS, "",
        "Name|PolicyName|ParamRef|Age",
    ),
    (
        ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False, "", ALL_VERBS, "",
        "Name|Webhooks:integer|Age",
    ),
    (
        ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, "", ALL_VERBS, "status",
        "Name|Validations:integer|ParamKind|Age",
    ),
    (
        ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False, "", ALL_VERBS, "",
        "Name|PolicyName|ParamRef|Age",
    ),
    (
        ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False, "", ALL_VERBS, "",
        "Name|Webhooks:integer|Age",
    ),
    (
        "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", False, "crd crds", ALL_VERBS,
        "status", "Name|Created At:date",
    ),
    ("coordination.k8s.io", "leases", "Lease", True, "", ALL_VERBS, "", "Name|Holder|Age"),
]  # fmt: skip


def columns_text(kind: Kind) -> str:
    return "|".join(
        column.name + ("" if column.type == "string" else f":{column.type}") + ("*" if column.priority else "")
        for column in kind.columns
    )


def test_discovery_lists_the_built_in_kinds_in_kubernetes_order() -> None:
    assert [
        (
            kind.group, kind.plural, kind.kind, kind.namespaced, " ".join(kind.short_names), kind.verbs,
            " ".join(sub.name for sub in kind.subresources), columns_text(kind),
        )
        for kind in registry.NATIVE
    ] == KINDS  # fmt: skip


def test_groups_come_in_the_order_of_kubernetes_apis() -> None:
    assert tuple(dict.fromkeys(kind.group for kind in registry.NATIVE)) == (
        "", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", RBAC, ADMISSION,
        "apiextensions.k8s.io", "coordination.k8s.io",
    )  # fmt: skip


def test_kinds_are_found_by_resource() -> None:
    leases = registry.native_kind("coordination.k8s.io", "leases")
    assert leases is not None
    assert leases.kind == "Lease"
    assert registry.native_kind("", "pods") is None


def kinds_with(flag: str) -> set[str]:
    return {kind.group_resource for kind in registry.NATIVE if getattr(kind, flag)}


RBAC_KINDS = {f"{plural}.{RBAC}" for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")}


def test_a_put_creates_objects_of_some_kinds_only() -> None:
    assert kinds_with("update_creates") == RBAC_KINDS | {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}


def test_a_put_without_a_version_overwrites_objects_of_some_kinds_only() -> None:
    core = {"configmaps", "events", "namespaces", "resourcequotas", "secrets", "serviceaccounts"}
    others = {"events.events.k8s.io", "certificatesigningrequests.certificates.k8s.io"}
    assert kinds_with("unconditional_update") == RBAC_KINDS | core | others


def test_a_delete_gives_back_objects_of_some_kinds_only() -> None:
    assert kinds_with("returns_deleted") == {"namespaces", "serviceaccounts", "resourcequotas"}


def test_only_kinds_with_a_spec_to_follow_count_generations() -> None:
    admission = {kind.group_resource for kind in registry.NATIVE if kind.group == ADMISSION}
    assert kinds_with("generation") == admission | {"customresourcedefinitions.apiextensions.k8s.io"}


def test_status_has_its_own_endpoint_where_the_kind_says_so() -> None:
    assert all(kind.has_status == (kind.subresource("status") is not None) for kind in registry.NATIVE)


def test_extension_kinds_share_a_category_and_no_kind_is_in_all() -> None:
    extending = {kind.group for kind in registry.NATIVE if "api-extensions" in kind.categories}
    assert extending == {ADMISSION, "apiextensions.k8s.io"}
    assert not any("all" in kind.categories for kind in registry.NATIVE)


def test_subresources_name_the_kind_that_they_take() -> None:
    accounts = registry.native_kind("", "serviceaccounts")
    assert accounts is not None
    token = accounts.subresource("token")
    assert token is not None
    assert (token.kind, token.group, token.version, token.verbs) == (
        "TokenRequest", "authentication.k8s.io", "v1", CREATE,
    )  # fmt: skip
    finalize = registry.NATIVE[2].subresource("finalize")
    assert finalize is not None
    assert finalize.verbs == ("update",)


@pytest.mark.parametrize("kind", [*registry.NATIVE, reviews.TOKENREQUEST], ids=lambda kind: kind.group_kind)
def test_each_kind_carries_its_published_schema(kind: Kind) -> None:
    assert kind.schema is not None
    assert kind.schema.source is component(kind.schema_name)
    assert {"group": kind.group, "version": "v1", "kind": kind.kind} in kind.schema.source[
        "x-kubernetes-group-version-kind"
    ]
    assert kind.description == kind.schema.source["description"]
    assert kind.builtin


@pytest.mark.parametrize(
    "kind", [kind for kind in registry.NATIVE if "list" in kind.verbs], ids=lambda kind: kind.group_kind
)
def test_each_stored_kind_has_a_list_schema(kind: Kind) -> None:
    listed = component(kind.schema_name + "List")
    assert listed["properties"]["items"]["items"]["$ref"].endswith("/" + kind.schema_name)
    assert listed["x-kubernetes-group-version-kind"] == [
        {"group": kind.group, "kind": kind.kind + "List", "version": "v1"}
    ]


@pytest.mark.parametrize("kind", [kind for kind in registry.NATIVE if kind.cells], ids=lambda kind: kind.group_kind)
@pytest.mark.parametrize("content", [{}, {"metadata": {}, "spec": None, "status": []}], ids=["bare", "odd"])
def test_each_kind_has_a_cell_for_each_column_whatever_the_object_holds(kind: Kind, content: dict[str, object]) -> None:
    assert kind.cells is not None
    cells = kind.cells({"metadata": {"name": "x"}, **content}, 0)
    assert len(cells) == len(kind.columns)
    for column, cell in zip(kind.columns, cells, strict=True):
        if column.type == "integer":
            assert isinstance(cell, int)


def test_both_event_kinds_are_stored_as_one_type() -> None:
    core, new = registry.native_kind("", "events"), registry.native_kind("events.k8s.io", "events")
    assert core is not None
    assert new is not None
    assert core.type == new.type
