"""Settings that `atoll start --shards` and `atoll shard` refuse, in one sentence and before any file is created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.cli.atoll import main
from harness.clients.kubectl import Result
from harness.servers import processes

Run = Callable[..., Result]


@pytest.fixture
def atoll(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an `atoll` command that ends by itself in this process."""

    def run(*arguments: str) -> Result:
        code = main.run(arguments)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return run


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--shards", "3", "--shard-name", "x"), "--shard-name is what --shards decides"),
        (("--shards", "3", "--nats-url", "nats://x"), "--nats-url is what --shards decides"),
        (("--shards", "65"), "shards 65 is not between 0 and 64"),
        (("--shards", "-1"), "shards -1 is not between 0 and 64"),
    ],
)
def test_settings_that_a_site_makes_itself_are_refused(
    atoll: Run, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    result = atoll("start", "--root-directory", str(tmp_path / "x"), *flags)
    assert (result.code, said in result.stderr) == (1, True), result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--shard-name", "eu"), "nats-url"),
        (("--shard-name", "eu", "--nats-url", "nats://x"), "root-shard-kubeconfig-file"),
        (("--nats-url", "nats://x", "--root-shard-kubeconfig-file", "x"), "the shard named root joins nobody"),
        (("--nats-credentials-file", "x"), "nats-credentials-file needs nats-url"),
        (("--nats-directory", "x"), "nats-directory needs nats-url"),
        (("--replicated-workspaces", "some"), "neither all nor needed"),
        (("--default-replication-level", "planet"), "is none of global, organization, region"),
        (("--tls-cert-file", "x"), "tls-cert-file and tls-private-key-file go together"),
        (("--shard-base-url", "http://x"), "is not an https URL"),
        (("--shard-external-url", "https://x/"), "without a slash at its end"),
        (("--shard-labels", "region"), "is no label"),
        (("--shard-labels", "region=e u"), "is no label"),
    ],
)
def test_what_makes_no_shard_of_a_site_is_refused(
    atoll: Run, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    result = atoll("shard", "--root-directory", str(tmp_path / "x"), *flags)
    assert (result.code, said in result.stderr) == (1, True), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_what_they_should_be_are_named(tmp_path: Path) -> None:
    """The command runs in its own process, as it sets up logging."""
    bad = tmp_path / "bad"
    bad.write_text("{}")
    common = (
        "shard",
        "--root-directory",
        str(tmp_path / "x"),
        "--nats-url",
        "nats://127.0.0.1:1",
        "--secure-port",
        "0",
        "--allow-any-filesystem",
        "--shard-name",
        "eu",
        "--root-shard-kubeconfig-file",
    )
    for flags, said in (
        ((str(tmp_path / "none"),), "none cannot be read"),
        (
            (str(bad), "--tls-cert-file", str(bad), "--tls-private-key-file", str(bad)),
            "cannot be read as a PEM certificate and its key",
        ),
    ):
        result = processes.atoll(*common, *flags)
        assert (result.code, said in result.stderr) == (1, True), result.stderr
