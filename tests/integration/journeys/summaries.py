"""What summaries of placed objects say, in the workspace that placed them."""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from harness.clients.api import eventually
from integration.journeys.fleet import WAIT_S, Side


def summary(side: Side, resource: str, name: str, where: str) -> Object:
    """The summary of an object, nothing while there is none."""
    labels = f"status.kubestellar.io/resource={resource},status.kubestellar.io/name={name}"
    found = side.get("statussummaries", "-n", where, "-l", labels)["items"]
    return dict(found[0]) if len(found) == 1 else {}


def reasons(side: Side, resource: str, name: str, where: str) -> list[str]:
    return [each["reason"] for each in summary(side, resource, name, where).get("brokenObjects") or ()]


def says(side: Side, resource: str, name: str, where: str, *expected: str) -> None:
    """Wait until a summary lists these reasons, and has seen the edge cluster."""

    def is_so() -> bool:
        found = summary(side, resource, name, where)
        return bool(found) and reasons(side, resource, name, where) == list(expected)

    try:
        eventually(is_so, f"{resource} {name}: {expected}", WAIT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {summary(side, resource, name, where)}") from error


def is_reported(side: Side, resource: str, name: str, where: str, count: int = 1) -> None:
    def is_so() -> bool:
        return bool((summary(side, resource, name, where).get("counts") or {}).get("upToDate") == count)

    eventually(is_so, f"{resource} {name} is up to date at {count}", WAIT_S)


def collector(name: str, **spec: object) -> Object:
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "StatusCollector", "metadata": {"name": name}}
    return {**head, "spec": spec}
