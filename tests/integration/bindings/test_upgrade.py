"""Bindings when their export or its schemas are changed, deleted or created."""

from __future__ import annotations

from harness.clients.api import Api, Object, crd, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    SCHEMAS,
    an_object,
    bind,
    binding,
    condition,
    export,
    make_export,
    objects_path,
    resource_of,
    schema,
    schema_of,
    wait,
    wait_bound,
    wait_condition,
)

GROUP = "shapes.example.com"


def bound_schemas(obj: Object) -> dict[str, str]:
    """Schema names of a binding's resources."""
    return {each["resource"]: each["schema"]["name"] for each in (obj["status"].get("boundResources") or [])}


def offer(provider: Api, *schemas: Object) -> None:
    """Let the export `shapes` offer these schemas."""
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"resources": [resource_of(each) for each in schemas]}})


def grown(prefix: str = "later") -> Object:
    """A second schema of circles, with one more field."""
    definition = crd("circles", GROUP)
    made = schema_of(definition, prefix)
    properties = made["spec"]["versions"][0]["schema"]["properties"]["spec"]["properties"]
    properties["shade"] = {"type": "string", "default": "dark"}
    return made


def test_a_new_schema_of_the_export_is_served_and_old_watches_end(provider: Api, consumer: Api) -> None:
    before, after = schema("circles"), grown()
    make_export(provider, "shapes", before)
    bind(consumer, provider.cluster, "shapes")
    path = objects_path(before)
    consumer.post(path, an_object(before, "one", spec={}))
    with consumer.watch(f"{path}?watch=1") as events:
        assert events.next().name == "one"
        provider.post(SCHEMAS, after)
        offer(provider, after)
        assert events.rest() == []
    name = after["metadata"]["name"]
    bound = wait(consumer, f"{BINDINGS}/shapes", lambda obj: bound_schemas(obj) == {"circles": name})
    assert bound["status"]["phase"] == "Bound"
    made = consumer.post(path, an_object(after, "two", spec={})).json
    assert made["spec"]["shade"] == "dark"
    assert [each["metadata"]["name"] for each in consumer.get(path).json["items"]] == ["one", "two"]


def test_resources_come_with_the_export_and_what_it_withdraws_stays_bound(provider: Api, consumer: Api) -> None:
    circles, squares = schema("circles"), schema("squares")
    make_export(provider, "shapes", circles)
    bind(consumer, provider.cluster, "shapes")
    consumer.post(objects_path(circles), an_object(circles, "one"))
    provider.post(SCHEMAS, squares)
    offer(provider, squares)
    wait(consumer, f"{BINDINGS}/shapes", lambda obj: set(bound_schemas(obj)) == {"circles", "squares"})
    consumer.post(objects_path(squares), an_object(squares, "one"))
    assert len(consumer.get(objects_path(circles)).json["items"]) == 1


def test_a_schema_that_goes_or_is_made_anew_changes_nothing_for_who_is_bound(provider: Api, consumer: Api) -> None:
    circles = schema("circles")
    make_export(provider, "shapes", circles)
    before = bind(consumer, provider.cluster, "shapes")
    provider.delete(f"{SCHEMAS}/{circles['metadata']['name']}")
    consumer.post(objects_path(circles), an_object(circles, "one"))
    provider.post(SCHEMAS, grown("today"))
    # The export is reconciled again, and the binding with it.
    provider.post(SCHEMAS, schema("squares"))
    offer(provider, circles, schema("squares"))
    after = wait(consumer, f"{BINDINGS}/shapes", lambda obj: len(bound_schemas(obj)) == 2)
    assert before["status"]["boundResources"][0] in after["status"]["boundResources"]
    made = consumer.post(objects_path(circles), an_object(circles, "two", spec={})).json
    assert "shade" not in made["spec"]


def test_without_its_export_a_binding_goes_on_and_says_so(provider: Api, consumer: Api) -> None:
    circles = schema("circles")
    make_export(provider, "shapes", circles)
    bind(consumer, provider.cluster, "shapes")
    provider.delete(f"{EXPORTS}/shapes")
    gone = wait_condition(consumer, f"{BINDINGS}/shapes", "APIExportValid", "False", "APIExportNotFound")
    assert (gone["status"]["phase"], condition(gone, "Ready")["status"]) == ("Bound", "True")
    consumer.post(objects_path(circles), an_object(circles, "one"))
    provider.post(EXPORTS, export("shapes", circles))
    wait_condition(consumer, f"{BINDINGS}/shapes", "APIExportValid", "True")


def test_a_binding_waits_for_its_export_its_schema_and_its_workspace(admin: Api, master: Api, consumer: Api) -> None:
    """Only masters can bind an export that does not exist; all others get 403."""
    name = workspace_under(admin, type_="universal").removeprefix("root:")
    path = f"root:{name}:later"
    master.at(consumer.cluster).post(BINDINGS, binding(path, "shapes"))
    waiting = wait_condition(consumer, f"{BINDINGS}/shapes", "APIExportValid", "False", "APIExportNotFound")
    assert waiting["status"]["phase"] == "Binding"
    parent = admin.at(f"root:{name}")
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "later"}}
    parent.post("/apis/tenancy.kcp.io/v1alpha1/workspaces", body)
    wait(parent, "/apis/tenancy.kcp.io/v1alpha1/workspaces/later", lambda obj: obj["status"]["phase"] == "Ready")
    provider, circles = admin.at(path), schema("circles")
    provider.post(EXPORTS, export("shapes", circles))
    wait_condition(consumer, f"{BINDINGS}/shapes", "APIExportValid", "False", "InternalError")
    provider.post(SCHEMAS, circles)
    bound = wait_bound(consumer, "shapes")
    assert not [label for label in bound["metadata"]["labels"] if label.startswith("paths.internal")]


def test_an_upgrade_whose_names_are_taken_leaves_the_old_one_served(provider: Api, consumer: Api) -> None:
    circles, squares, renamed = schema("circles"), schema("squares"), schema("circles", prefix="later")
    renamed["spec"]["names"] = {**renamed["spec"]["names"], "shortNames": ["square"]}
    squares["spec"]["names"] = {**squares["spec"]["names"], "singular": "square"}
    make_export(provider, "shapes", circles)
    make_export(provider, "squares", squares)
    bind(consumer, provider.cluster, "shapes")
    bind(consumer, provider.cluster, "squares")
    provider.post(SCHEMAS, renamed)
    offer(provider, renamed)
    refused = wait_condition(consumer, f"{BINDINGS}/shapes", "BindingUpToDate", "False", "NamingConflicts")
    assert refused["status"]["phase"] == "Bound"
    assert condition(refused, "Ready")["status"] == condition(refused, "InitialBindingCompleted")["status"] == "True"
    assert bound_schemas(refused) == {"circles": circles["metadata"]["name"]}
    consumer.post(objects_path(circles), an_object(circles, "one"))
    consumer.delete(f"{BINDINGS}/squares")
    upgraded = wait_bound(consumer, "shapes")
    assert bound_schemas(upgraded) == {"circles": renamed["metadata"]["name"]}
