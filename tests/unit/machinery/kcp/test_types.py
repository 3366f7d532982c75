"""Which type a workspace gets, and where types may stand."""

from __future__ import annotations

import pytest

from atoll.machinery.kcp.workspaces.workspacetypes import (
    MAX_ALIASES,
    DefaultBinding,
    Lookup,
    Resolution,
    TypeReference,
    TypeRefused,
    WorkspaceType,
    check,
    forbidden,
    read_type,
    resolve,
    with_type,
)
from harness.data.kcp_objects import parent, root_types, type_lookup, workspace


def wtype(name: str, path: str = "root:acme", cluster: str = "c1", **spec: object) -> WorkspaceType:
    annotations = {"kcp.io/cluster": cluster, "kcp.io/path": path}
    return read_type({"metadata": {"name": name, "annotations": annotations}, "spec": spec})


def extends(*names: str, path: str = "root:acme") -> dict[str, object]:
    return {"with": [{"name": name, "path": path} for name in names]}


def names(resolution: Resolution) -> list[str]:
    return [alias.qualified for alias in resolution.aliases]


def refusal(requested: TypeReference | None, lookup: Lookup, type_: str = "root:root") -> str:
    with pytest.raises(TypeRefused) as caught:
        resolution = resolve(requested, parent(type_), lookup)
        check(resolution, parent(type_), lookup, lambda _: True)
    return str(caught.value)


def test_without_a_request_it_is_the_default_child_of_the_parents_type() -> None:
    lookup = root_types()
    assert names(resolve(None, parent("root:root"), lookup)) == ["root:universal", "root:organization"]
    assert names(resolve(None, parent("root:organization"), lookup)) == ["root:universal"]


def test_without_a_path_the_nearest_type_going_up_is_taken() -> None:
    near, far = wtype("lab", "root:acme:web", "c2"), wtype("lab", "root:acme")
    here = parent("root:universal", "root:acme:web:deep", "c3")
    assert names(resolve(TypeReference("lab"), here, root_types(near, far))) == ["root:acme:web:lab"]
    assert names(resolve(TypeReference("lab"), here, root_types(far))) == ["root:acme:lab"]
    assert names(resolve(TypeReference("team"), here, root_types(far)))[-1] == "root:team"


def test_a_home_finds_root_types_too() -> None:
    here = parent("root:home", "user:alice", "v1u4alow0iv9")
    assert names(resolve(TypeReference("universal"), here, root_types())) == ["root:universal"]


def test_bases_come_before_the_type_in_the_order_of_their_references() -> None:
    lookup = type_lookup(
        wtype("t", extend=extends("a", "b")),
        wtype("a", extend=extends("x")),
        wtype("b", extend=extends("x")),
        wtype("x"),
    )
    assert [alias.name for alias in resolve(TypeReference("t", "root:acme"), parent(), lookup).aliases] == [
        "a",
        "x",
        "b",
        "t",
    ]


def test_initializers_are_named_by_cluster_with_bindings_last() -> None:
    custom = wtype("lab", initializer=True, terminator=True, extend=extends("universal", path="root"))
    resolution = resolve(TypeReference("lab", "root:acme"), parent(), root_types(custom))
    assert resolution.initializers == ("root:universal", "c1:lab", "system:apibindings")
    assert resolution.terminators == ("c1:lab",)


def test_default_bindings_are_gathered_once_and_get_the_types_own_cluster() -> None:
    bindings = [{"export": "widgets"}, {"export": "tenancy.kcp.io", "path": "root"}]
    custom = wtype("lab", defaultAPIBindings=bindings, extend=extends("universal", path="root"))
    resolution = resolve(TypeReference("lab", "root:acme"), parent(), root_types(custom))
    assert resolution.default_bindings == (
        DefaultBinding("tenancy.kcp.io", "root"),
        DefaultBinding("topology.kcp.io", "root"),
        DefaultBinding("widgets", "c1"),
    )


def test_what_cannot_be_resolved_is_refused() -> None:
    lookup = root_types()
    assert refusal(TypeReference("none"), lookup) == 'workspace type "none" cannot be resolved'
    assert refusal(TypeReference("x", "root:no"), lookup) == 'workspace type "root:no:x" cannot be resolved'
    missing = 'parent type cannot be resolved: workspacetypes.tenancy.kcp.io "root:gone" not found'
    assert refusal(None, lookup, "root:gone") == missing


def test_a_parent_needs_a_type() -> None:
    key = "internal.tenancy.kcp.io/type"
    bare = parent()
    del bare["metadata"]["annotations"][key]
    with pytest.raises(TypeRefused, match=f"annotation {key} on LogicalCluster must be set"):
        resolve(None, bare, root_types())
    assert refusal(None, root_types(), "lonely") == (
        f"annotation {key} on LogicalCluster must be in the form of cluster:name"
    )


def test_a_parent_type_without_default_child_asks_for_a_type() -> None:
    text = "spec.defaultChildWorkspaceType of workspace type root:acme:lab must be set"
    assert refusal(None, root_types(wtype("lab")), "root:acme:lab") == text


def test_cycles_and_missing_bases_are_refused() -> None:
    cycle = type_lookup(wtype("a", extend=extends("b")), wtype("b", extend=extends("a")))
    assert refusal(TypeReference("a", "root:acme"), cycle) == (
        "circular dependency detected in workspace type root:acme:a: root:acme:a -> root:acme:b"
    )
    missing = type_lookup(wtype("a", extend=extends("b")))
    text = "unable to find inherited workspace type root:acme:b"
    assert refusal(TypeReference("a", "root:acme"), missing) == text


def test_a_type_extends_a_bounded_number_of_others() -> None:
    chain = [wtype(f"t{i}", extend=extends(f"t{i + 1}")) for i in range(MAX_ALIASES + 1)]
    lookup = type_lookup(*chain, wtype(f"t{MAX_ALIASES + 1}"))
    assert "extends more than" in refusal(TypeReference("t0", "root:acme"), lookup)
    assert len(resolve(TypeReference("t2", "root:acme"), parent(), lookup).aliases) == MAX_ALIASES


def test_every_alias_must_be_usable() -> None:
    lookup = root_types()
    resolution = resolve(TypeReference("team", "root"), parent("root:organization"), lookup)
    with pytest.raises(TypeRefused) as caught:
        check(resolution, parent("root:organization"), lookup, lambda each: each.name == "team")
    assert str(caught.value) == (
        "unable to use workspace type root:universal: missing verb='use' permission on workspacetype"
    )


def test_a_type_limits_its_parents_by_their_aliases() -> None:
    lookup = root_types()
    assert refusal(TypeReference("organization", "root"), lookup, "root:team") == (
        "workspace type root:organization only allows [root:root] parent workspaces, "
        "but parent type root:team only implements [root:team root:universal]"
    )
    resolution = resolve(TypeReference("team", "root"), parent("root:team"), lookup)
    check(resolution, parent("root:team"), lookup, lambda _: True)


def test_a_type_limits_its_children_by_their_aliases() -> None:
    strict = wtype("strict", limitAllowedChildren={"types": [{"name": "leaf", "path": "root:acme"}]})
    lookup = root_types(strict, wtype("leaf"), wtype("leaves", extend=extends("leaf")))
    assert refusal(TypeReference("universal", "root"), lookup, "root:acme:strict") == (
        "workspace type root:acme:strict only allows [root:acme:leaf] child workspaces, "
        "but child type root:universal only implements [root:universal]"
    )
    here = parent("root:acme:strict")
    check(resolve(TypeReference("leaves", "root:acme"), here, lookup), here, lookup, lambda _: True)


def test_an_inherited_limit_names_the_base_it_comes_from() -> None:
    custom = wtype("org", extend=extends("organization", path="root"))
    assert refusal(TypeReference("org", "root:acme"), root_types(custom), "root:universal") == (
        "workspace type root:acme:org extends root:organization, which only allows [root:root] parent "
        "workspaces, but parent type root:universal only implements [root:universal]"
    )


def test_types_for_roots_only_have_no_parents() -> None:
    text = "workspace type root:home cannot have any parents"
    assert refusal(TypeReference("home", "root"), root_types()) == text


def test_childless_types_have_no_children() -> None:
    lookup = root_types(wtype("leaf", limitAllowedChildren={"none": True}))
    text = "workspace type root:acme:leaf cannot have any children"
    assert refusal(TypeReference("universal", "root"), lookup, "root:acme:leaf") == text


def test_a_refusal_is_a_403_on_the_workspace() -> None:
    error = forbidden("shop", TypeRefused("no"))
    assert error.code == 403
    assert error.message == 'workspaces.tenancy.kcp.io "shop" is forbidden: no'
    assert error.status()["details"] == {"name": "shop", "group": "tenancy.kcp.io", "kind": "workspaces"}


def test_the_type_is_spelled_out_and_adds_its_labels_where_absent() -> None:
    custom = wtype("lab", additionalWorkspaceLabels={"tier": "x", "team": "y"})
    resolution = resolve(TypeReference("lab", "root:acme"), parent(), type_lookup(custom))
    before = workspace()
    before["metadata"]["labels"] = {"tier": "mine"}
    before["spec"] = {}
    after = with_type(before, resolution)
    assert after["spec"]["type"] == {"name": "lab", "path": "root:acme"}
    assert after["metadata"]["labels"] == {"tier": "mine", "team": "y"}
    assert before["spec"] == {}
