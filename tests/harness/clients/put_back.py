"""The checks that an object can be put back as it was read, in every format of its kind, or is for reading only."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from harness.clients.api import JSON, YAML, Api

PROTOBUF = "application/vnd.kubernetes.protobuf"
#: Objects of each kind that `objects` yields.
OF_EACH_KIND = 3


def objects(api: Api, prefix: str = "", verb: str = "update") -> Iterator[str]:
    """The paths of a workspace's objects of the kinds that have a verb: three of each, in each version, and scales."""
    versions = [
        each["groupVersion"] for group in api.get(f"{prefix}/apis").json["groups"] for each in group["versions"]
    ]
    core = [f"/api/{version}" for version in api.get(f"{prefix}/api").json["versions"]]
    for root in (*core, *(f"/apis/{version}" for version in versions)):
        resources = {each["name"]: set(each["verbs"] or ()) for each in api.get(prefix + root).json["resources"]}
        for name, verbs in resources.items():
            if not {"get", "list", verb} <= verbs:
                continue
            for obj in api.get(f"{prefix}{root}/{name}?limit={OF_EACH_KIND}").json["items"]:
                namespace = obj["metadata"].get("namespace")
                scope = f"{root}/namespaces/{namespace}" if namespace else root
                path = f"{prefix}{scope}/{name}/{obj['metadata']['name']}"
                yield path
                if f"{name}/scale" in resources:
                    yield f"{path}/scale"


def check_all_put_back(api: Api, *kinds: str, prefix: str = "") -> None:
    """Check that every object of a workspace can be put back; those of `kinds` must be there."""
    seen = set()
    for path in objects(api, prefix):
        # A lifecycle view serves the LogicalCluster itself for reading, and its status for writing.
        if prefix and path.endswith("/logicalclusters/cluster"):
            continue
        check_put_back(api, path)
        seen.add(path.split("/")[-1 if path.endswith("/scale") else -2])
    assert seen >= set(kinds), set(kinds) - seen


def check_put_back(api: Api, path: str) -> None:
    """Check that a PUT of the bytes of a GET changes nothing, to the object and to its status."""
    before = api.get(path).json
    for accept in (JSON, YAML, PROTOBUF):
        answer = api.get(path, accept=accept, expect=0)
        if answer.code == 406 and accept == PROTOBUF:
            continue
        # Protobuf is an answer for objects that their kind's message holds, JSON for others.
        media = answer.header("content-type")
        assert media == accept or (media, accept) == (JSON, PROTOBUF), path
        after = api.put(path, answer.body, kind=media).json
        assert after == before, (path, accept)
        if "status" in before and not path.endswith("/scale"):
            again = api.send("PUT", f"{path}/status", answer.body, kind=media)
            assert again.code in {403, 404} or again.json == before, (path, accept)


def check_read_only(api: Api, path: str) -> None:
    """Check that an object reads the same in every format, and that a PUT of it is refused and changes nothing.

    Its status may be for writing: a PUT of it changes nothing, either.
    """
    before = api.get(path).json
    for accept in (JSON, YAML, PROTOBUF):
        answer = api.get(path, accept=accept, expect=0)
        if answer.code == 406 and accept == PROTOBUF:
            continue
        media = answer.header("content-type")
        assert media == accept or (media, accept) == (JSON, PROTOBUF), path
        if media != PROTOBUF:
            assert yaml.load(answer.body, yaml.CSafeLoader) == before, (path, accept)
        assert api.send("PUT", path, answer.body, kind=media).code in {403, 405}, (path, accept)
        again = api.send("PUT", f"{path}/status", answer.body, kind=media)
        assert again.code in {403, 404, 405} or again.json == before, (path, accept)
        assert api.get(path).json == before, (path, accept)
