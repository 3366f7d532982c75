"""The check that an object can be put back as it was read, in every format of its kind."""

from __future__ import annotations

from harness.clients.api import JSON, YAML, Api

PROTOBUF = "application/vnd.kubernetes.protobuf"


def check_put_back(api: Api, path: str) -> None:
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
        if "status" in before:
            again = api.send("PUT", f"{path}/status", answer.body, kind=media)
            assert again.code in {403, 404} or again.json == before, (path, accept)
