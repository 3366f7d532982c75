"""The processes of the edge service: one works alone, several share the work."""

from __future__ import annotations

from pathlib import Path

from atoll.standalone.edge_service import EdgeFiles, controllers_process, edge_users


async def _url() -> str:
    return "nats://127.0.0.1:4222"


def files(processes: int) -> EdgeFiles:
    credentials = tuple(Path(f"/pki/nats-{user}.json") for user in edge_users(processes))
    return EdgeFiles(Path("/admin.kubeconfig"), Path("/edge"), _url, credentials, ("--log-level=info",))


def test_one_process_works_alone() -> None:
    process = controllers_process(files(1), "nats://x")
    assert process.name == "edge-controllers"
    assert process.arguments[1:5] == (
        "--kubeconfig=/edge/kubeconfig",
        "--directory=/edge",
        "--nats-url=nats://x",
        "--nats-credentials-file=/pki/nats-edge-0.json",
    )
    assert not any("shared" in each for each in process.arguments)


def test_several_share_the_work_with_a_directory_and_a_nats_user_each() -> None:
    first, second = (controllers_process(files(2), "nats://x", number) for number in range(2))
    for process, directory, user in ((first, "/edge", "edge-0"), (second, "/edge/1", "edge-1")):
        assert f"--directory={directory}" in process.arguments
        assert f"--nats-credentials-file=/pki/nats-{user}.json" in process.arguments
        assert "--shared=true" in process.arguments
        assert "--kubeconfig=/edge/kubeconfig" in process.arguments
    assert first.name != second.name
