"""The order of an import, and what of an object is carried."""

from __future__ import annotations

import pytest

from atoll.cli.kubectl.tree_import.carried import Names, carried, digest, translated, with_owners
from atoll.cli.kubectl.tree_import.order import SourceWorkspace, in_order
from atoll.machinery.meta.objects import Object


def workspace(path: str, type: tuple[str, str] = ("root", "universal"), *types: Object) -> SourceWorkspace:
    manifest = {"metadata": {"name": path.rpartition(":")[2]}, "spec": {"type": {"path": type[0], "name": type[1]}}}
    return SourceWorkspace(path, path, manifest, types)


def kind(name: str, *, binds: str = "", extends: str = "") -> Object:
    bindings = [{"path": binds, "export": "boats"}] if binds else []
    bases = [{"path": extends, "name": "base"}] if extends else []
    return {"metadata": {"name": name}, "spec": {"defaultAPIBindings": bindings, "extend": {"with": bases}}}


def test_a_workspace_comes_after_its_parent_its_type_its_types_base_and_what_the_type_binds() -> None:
    steps = in_order(
        [
            workspace("root:a", ("root:y", "harbour")),
            workspace("root:a:b"),
            workspace("root:x", ("root", "universal"), kind("base")),
            workspace("root:y", ("root", "universal"), kind("harbour", binds="root:z", extends="root:x")),
            workspace("root:z"),
        ]
    )
    place = {step: number for number, step in enumerate(steps)}
    assert len(place) == 10
    assert place["exports", "root:a"] < place["exports", "root:a:b"]
    assert place["types", "root:y"] < place["exports", "root:a"]
    assert max(place["types", "root:x"], place["exports", "root:z"]) < place["types", "root:y"]


def test_a_circle_of_needs_ends_and_has_each_step_once() -> None:
    circle = [
        workspace("root:a", ("root:b", "one"), kind("two", binds="root:b")),
        workspace("root:b", ("root:a", "two"), kind("one", binds="root:a")),
    ]
    steps = in_order(circle)
    assert sorted(steps) == [(stage, path) for stage in ("exports", "types") for path in ("root:a", "root:b")]


def test_what_a_server_sets_by_itself_is_not_carried() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"claimed.internal.apis.kcp.io/x": "y", "mine": "1"},
            "annotations": {"kcp.io/cluster": "c", "internal.kcp.io/replicate": "x"},
            "finalizers": ["apis.kcp.io/apibinding-finalizer", "foregroundDeletion", "mine.io/x"],
        },
        "data": {"a": "b"},
        "status": {"phase": "Active"},
    }
    metadata = {"name": "a", "labels": {"mine": "1"}, "finalizers": ["mine.io/x"]}
    assert carried(obj) == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}
    assert digest(carried(obj)) == digest(carried({**obj, "status": {}}))


def test_where_a_placement_goes_is_not_carried() -> None:
    slice = {"kind": "SinglePlacementSlice", "metadata": {"name": "p"}, "destinations": [{"cluster": "c"}]}
    assert carried(slice)["destinations"] == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("system:kcp:serviceaccount:abc:default:robot", "system:kcp:serviceaccount:new:default:robot"),
        ("system:cluster:abc", "system:cluster:new"),
        ("system:kcp:serviceaccount:unseen:default:robot", "system:kcp:serviceaccount:unseen:default:robot"),
        ("abc", "abc"),
    ],
)
def test_accounts_of_other_workspaces_are_named_by_the_logical_clusters_of_the_site(name: str, meant: str) -> None:
    names = Names()
    names.clusters["abc"] = "new"
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "a"}, "subjects": [{"kind": "User", "name": name}]}
    assert translated(binding, names)["subjects"][0]["name"] == meant
    assert binding["subjects"] == [{"kind": "User", "name": name}]


def test_an_owner_has_its_uid_of_the_site_or_is_left_out() -> None:
    owners = [{"kind": "Boat", "name": name, "uid": f"old-{name}"} for name in ("ark", "gone")]
    obj = {"metadata": {"name": "cargo", "ownerReferences": owners}}
    found = with_owners(obj, lambda owner: {"old-ark": "new-ark"}.get(owner["uid"], ""))
    assert found["metadata"]["ownerReferences"] == [{"kind": "Boat", "name": "ark", "uid": "new-ark"}]
    assert with_owners(obj, lambda _: "")["metadata"] == {"name": "cargo"}
