"""StatusCollectors and the summaries of their rows, case by case: what does not compile, what fails on data, bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.summaries.broken import Breakage, collected_breakage, default_breakage
from atoll.machinery.edge.summaries.cells import column
from atoll.machinery.edge.summaries.collectors import Collector, InvalidCollector, collector_of
from atoll.machinery.edge.summaries.summary import (
    MAX_BYTES,
    Findings,
    Report,
    Subject,
    content_of,
    label_of,
    set_title,
    set_uid,
    summary,
)
from atoll.machinery.edge.summaries.tables import table
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta.labels import label_value_errors
from atoll.machinery.meta.objects import Object, encode_json

DEPLOYMENT = ObjectRef("apps", "deployments", "shop", "web")
KIND = ("apps/v1", "Deployment")
SUBJECT = Subject("object-uid", "placement", "placement-uid", DEPLOYMENT, "deployments.apps shop/web")


def collector(**spec: Any) -> Collector:
    return collector_of({"metadata": {"name": "c"}, "spec": spec})


def row(status: Object | None = None, sent: Object | None = None, **inventory: str) -> Object:
    returned = {} if status is None else {"status": status}
    return {"inventory": inventory, "obj": {}, "sent": sent or {}, "returned": returned, "propagation": {}}


def select(*texts: str) -> list[Object]:
    return [{"name": f"n{index}", "def": text} for index, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("spec", "field", "detail"),
    [
        ({"filter": "returned."}, "spec.filter", "compilation failed"),
        ({"filter": "'text'"}, "spec.filter", "must evaluate to a bool"),
        ({"filter": "self.x"}, "spec.filter", "undeclared reference"),
        ({"select": select("1", "1 + 'a'")}, "spec.select[1].def", "no matching overload"),
        ({"groupBy": select("nothing(1)")}, "spec.groupBy[0].def", "undeclared reference"),
        (
            {"combinedFields": [{"name": "a", "type": "SUM", "subject": "("}]},
            "spec.combinedFields[0].subject",
            "Syntax",
        ),
        ({"broken": {"test": "1"}}, "spec.broken.test", "must evaluate to a bool"),
        ({"broken": {"test": "true", "message": "1"}}, "spec.broken.message", "must evaluate to a string"),
        ({"target": [{"resources": ["*", "pods"]}]}, "spec.target[0].resources", "only value"),
        ({"filter": "obj.a.all(x, obj.b.all(y, obj.c.all(z, x == y && y == z)))"}, "spec.filter", "estimated cost"),
    ],
)
def test_what_does_not_compile_or_costs_too_much_is_refused_by_its_field(spec: Object, field: str, detail: str) -> None:
    with pytest.raises(InvalidCollector) as caught:
        collector(**spec)
    assert caught.value.errors[0].field == field
    assert detail in str(caught.value)


def test_a_field_that_is_not_there_is_null_and_a_failure_is_null_with_an_error() -> None:
    found = collector(select=select("returned.status.a", "1 / returned.status.b", "returned.status.b / 0.0", "b'x'"))
    errors: dict[str, str] = {}
    cells = found.cells(row({"b": 0}), errors)
    assert cells is not None
    assert cells.columns == (None, None, None, None)
    assert errors == {"n1": "division by zero", "n2": "no such overload", "n3": "the value is not JSON"}
    (result,) = table(found, [cells], errors)["rows"]
    assert [each["type"] for each in result["columns"]] == ["Null"] * 4


@pytest.mark.parametrize("value", ["0.0 / 0.0", "1.0 / 0.0", "-1.0 / 0.0", "double('NaN')", "double('inf')"])
def test_what_is_not_finite_is_null_never_nan(value: str) -> None:
    errors: dict[str, str] = {}
    found = collector(combinedFields=[{"name": "s", "type": "SUM", "subject": value}])
    cells = found.cells(row({}), errors)
    assert cells is not None and cells.subjects == (None,)
    assert errors == {"s": "the value is not a finite number"}
    assert table(found, [cells], errors)["rows"] == [{"columns": [{"type": "Null"}]}]


def test_sums_that_leave_the_numbers_are_null_and_integers_are_exact() -> None:
    found = collector(combinedFields=[{"name": "s", "type": "SUM", "subject": "returned.status.n"}])
    rows = [each for n in (1e308, 1e308) if (each := found.cells(row({"n": n}), {})) is not None]
    assert table(found, rows, {})["rows"] == [{"columns": [{"type": "Null"}]}]
    rows = [each for n in (2**63 - 1, 2**63 - 1) if (each := found.cells(row({"n": n}), {})) is not None]
    assert table(found, rows, {})["rows"] == [{"columns": [{"type": "Number", "float": str(2**64 - 2)}]}]


def test_a_text_that_is_no_number_does_not_count_and_is_an_error() -> None:
    found = collector(combinedFields=[{"name": "s", "type": "AVG", "subject": "returned.status.n"}])
    rows = [each for n in ("3", "x", 5) if (each := found.cells(row({"n": n}), {})) is not None]
    errors: dict[str, str] = {}
    assert table(found, rows, errors)["rows"] == [{"columns": [{"type": "Number", "float": "4"}]}]
    assert errors == {"s": "AVG of a value that is not a number"}


def test_the_expressions_of_a_row_share_one_budget() -> None:
    text = "[1,2,3,4,5,6,7,8,9,10].map(x, [1,2,3,4,5,6,7,8,9,10].map(y, returned.status.a.map(z, x + y + z)))"
    found = collector(select=select("size(" + text + ")", "returned.status.a[0]"))
    errors: dict[str, str] = {}
    cells = found.cells(row({"a": list(range(1000))}), errors)
    assert cells is not None and cells.columns == (None, None)
    assert set(errors) == {"n0", "n1"}


def test_a_cell_that_is_large_is_null_with_an_error() -> None:
    errors: dict[str, str] = {}
    cells = collector(select=select("returned.status.a")).cells(row({"a": "x" * 2000}), errors)
    assert cells is not None and cells.columns == (None,)
    assert errors == {"n0": "the value is larger than 1024 bytes"}


def test_each_type_of_cell_has_its_form() -> None:
    values = (None, True, 1, 1.5, "t", [1], {"a": None})
    assert [column(each) for each in values] == [
        {"type": "Null"},
        {"type": "Bool", "bool": True},
        {"type": "Number", "float": "1"},
        {"type": "Number", "float": "1.5"},
        {"type": "String", "string": "t"},
        {"type": "Array", "array": [1]},
        {"type": "Object", "object": {"a": None}},
    ]


def false(condition: str) -> Object:
    return {"conditions": [{"type": condition, "status": "False"}]}


@pytest.mark.parametrize(
    ("resource", "status", "sent", "reason"),
    [
        ("deployments.apps", {"availableReplicas": 2}, {"spec": {"replicas": 2}}, ""),
        ("deployments.apps", {"availableReplicas": 1}, {"spec": {"replicas": 2}}, "Unavailable"),
        ("deployments.apps", {"availableReplicas": 1}, {"spec": {}}, ""),
        ("deployments.apps", {}, {"spec": {}}, "Unavailable"),
        ("deployments.apps", {}, {"spec": {"replicas": 0}}, ""),
        ("deployments.apps", false("Progressing"), {"spec": {}}, "NotProgressing"),
        ("replicasets.apps", {}, {"spec": {"replicas": 1}}, "Unavailable"),
        ("statefulsets.apps", {"availableReplicas": 1}, {"spec": {"replicas": 2}}, "Unavailable"),
        ("daemonsets.apps", {"desiredNumberScheduled": 2, "numberAvailable": 1}, {}, "Unavailable"),
        ("daemonsets.apps", {"desiredNumberScheduled": 2, "numberAvailable": 2}, {}, ""),
        ("jobs.batch", {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]}, {}, "Failed"),
        ("jobs.batch", {"conditions": [{"type": "Complete", "status": "True"}]}, {}, ""),
        ("cronjobs.batch", false("Ready"), {}, ""),
        ("pods", {"phase": "Failed"}, {}, "Phase"),
        ("pods", {"phase": "Unknown"}, {}, "Phase"),
        ("pods", {"phase": "Running"}, {}, ""),
        *(
            (
                "pods",
                {"phase": "Pending", field: [{"name": "c", "state": {"waiting": {"reason": reason}}}]},
                {},
                "Waiting",
            )
            for field in ("containerStatuses", "initContainerStatuses")
            for reason in ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull")
        ),
        ("pods", {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}, {}, ""),
        ("persistentvolumeclaims", {"phase": "Lost"}, {}, "Lost"),
        ("persistentvolumeclaims", {"phase": "Pending"}, {}, "Pending"),
        ("persistentvolumeclaims", {"phase": "Bound"}, {}, ""),
        ("services", {"loadBalancer": {}}, {"spec": {"type": "LoadBalancer"}}, "NoIngress"),
        ("services", {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, {"spec": {"type": "LoadBalancer"}}, ""),
        ("services", {"loadBalancer": {}}, {"spec": {"type": "ClusterIP"}}, ""),
        ("apiservices.apiregistration.k8s.io", false("Available"), {}, "NotAvailable"),
        ("cogs.x.dev", {"conditions": [{"type": "Ready", "status": "False", "message": "m"}]}, {}, "NotReady"),
        ("cogs.x.dev", false("Available"), {}, "NotReady"),
        ("cogs.x.dev", {"conditions": [{"type": "Ready", "status": "True"}]}, {}, ""),
        ("configmaps", {}, {}, ""),
    ],
)
def test_a_kind_is_broken_as_its_tests_say(resource: str, status: Object, sent: Object, reason: str) -> None:
    plural, _, group = resource.partition(".")
    found = default_breakage(ObjectRef(group, plural, "n", "x"), row(status, sent))
    assert (found.reason if found is not None else "") == reason


def test_the_text_of_a_broken_object_says_what_its_condition_says_and_is_cut() -> None:
    job = {"conditions": [{"type": "Failed", "status": "True", "message": "m" * 300}]}
    assert default_breakage(ObjectRef("batch", "jobs", "n", "x"), row(job)) == Breakage("Failed", "m" * 256)


def test_the_test_of_a_collector_says_what_is_broken() -> None:
    found = collector(broken={"test": "returned.status.n > 2", "message": "'n is ' + string(returned.status.n)"})
    assert collected_breakage(found, row({"n": 3}), {}) == Breakage("Collected", "n is 3")
    assert collected_breakage(found, row({"n": 2}), {}) is None
    errors: dict[str, str] = {}
    assert collected_breakage(found, row({"n": "x"}), errors) is None
    assert errors == {"broken.test": "no such overload"}


def destination(number: int) -> Destination:
    return Destination("inventory", f"location-{number:04}", f"target-{number:04}", f"uid-{number}")


def broken(number: int, since: str = "2026-01-01T00:00:00Z", message: str = "m") -> Report:
    return Report(destination(number), DEPLOYMENT, KIND, Breakage("Unavailable", message), since)


def test_a_list_of_broken_objects_has_the_oldest_and_counts_the_rest() -> None:
    """A list that is cut does not lose its count."""
    reports = [broken(number, f"2026-01-01T00:{59 - number:02}:00Z") for number in range(25)]
    found = summary(SUBJECT, Findings(26, 26, reported=26, up_to_date=1, broken=reports))
    assert [each["syncTargetName"] for each in found["brokenObjects"]] == [f"target-{n:04}" for n in range(24, 14, -1)]
    assert found["brokenTruncated"] == 15
    assert found["counts"] == {"destinations": 26, "reported": 26, "upToDate": 1, "broken": 25}
    assert len(summary(SUBJECT, Findings(broken=reports, max_broken=100))["brokenObjects"]) == 25
    assert summary(SUBJECT, Findings(broken=reports, left_out=7))["brokenTruncated"] == 22, "and those of other lists"


def test_a_summary_of_any_number_of_edges_fits_into_its_bytes() -> None:
    reports = [broken(number, message="\N{SNOWMAN}" * 256) for number in range(5000)]
    columns = [{"type": "String", "string": "x" * 1000}] * 5
    tables = [
        {"name": f"c{number}", "columnNames": ["n" * 63] * 15, "rows": [{"columns": columns}] * 100}
        for number in range(30)
    ]
    found = summary(SUBJECT, Findings(broken=reports, tables=tables, max_broken=100))
    assert len(encode_json(found)) < MAX_BYTES - 4096
    assert len(found["brokenObjects"]) + found["brokenTruncated"] == found["counts"]["broken"] == 5000
    assert all(len(each["rows"]) + each["truncated"] == 100 for each in found["results"])
    cut = summary(SUBJECT, Findings(tables=[{**each, "truncated": 4900} for each in tables]))
    assert all(len(each["rows"]) + each["truncated"] == 5000 for each in cut["results"]), "a table that was cut before"


def test_a_summary_is_owned_by_its_placement_and_found_by_labels() -> None:
    found = summary(SUBJECT, Findings())
    metadata = found["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("object-uid.placement-uid", "shop")
    assert metadata["labels"] == {
        "status.kubestellar.io/api-group": "apps",
        "status.kubestellar.io/resource": "deployments",
        "status.kubestellar.io/namespace": "shop",
        "status.kubestellar.io/name": "web",
        "status.kubestellar.io/edge-placement": "placement",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("EdgePlacement", "placement", "placement-uid")
    assert content_of({**found, "observedAt": "x"}) == content_of(found)


@pytest.mark.parametrize("name", ["a" * 200, "system:node:x", "-a", "a b", "", "web", "\N{SNOWMAN}" * 3])
def test_any_name_becomes_the_value_of_a_label(name: str) -> None:
    assert label_value_errors(label_of(name)) == []


def test_labels_of_names_that_are_alike_differ() -> None:
    assert label_of("system:a") != label_of("system-a")
    assert label_of("a" * 100) != label_of("a" * 101)


def test_an_object_without_a_namespace_is_summarized_in_that_of_reports() -> None:
    of_cluster = Subject("u", "p", "pu", ObjectRef("x.dev", "cogs", "", "c"), "cogs.x.dev c")
    assert summary(of_cluster, Findings())["metadata"]["namespace"] == "kubestellar-report"


def test_a_set_is_known_by_its_content() -> None:
    first, second = UpsyncSet("x.dev", ("cogs",), ("*",), ("*",)), UpsyncSet("x.dev", ("cogs",), ("a",), ("*",))
    assert set_uid(first) != set_uid(second)
    assert set_title(first) == "upsync cogs.x.dev"


DOCS = Path(__file__).parents[4] / "docs"


def blocks_of_the_page() -> list[Object]:
    page = (DOCS / "edge.md").read_text()
    return [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


@pytest.mark.parametrize("name", ["size", "replicas"])
def test_the_page_shows_the_files_that_its_commands_apply(name: str) -> None:
    shown = [each for each in blocks_of_the_page() if each["metadata"]["name"] == name]
    assert shown == [yaml.safe_load((DOCS / "examples" / f"{name}.yaml").read_text())]


def test_the_collectors_of_the_page_compile_and_say_what_it_says() -> None:
    blocks = blocks_of_the_page()
    found = {each["metadata"]["name"]: collector_of(each) for each in blocks if each["kind"] == "StatusCollector"}
    assert sorted(found) == ["databases", "pods", "replicas"]
    rows = [found["replicas"].cells(row({"availableReplicas": number}), {}) for number in (2, 3)]
    (result,) = table(found["replicas"], [each for each in rows if each is not None], {})["rows"]
    assert [each["float"] for each in result["columns"]] == ["2", "5"]
    breakage = collected_breakage(found["databases"], row({"replicationLagSeconds": 90}), {})
    assert breakage == Breakage("Collected", "the replica is 90 s behind")
