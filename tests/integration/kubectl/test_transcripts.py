"""The transcripts of each page, run in one shell against a new shard, print what the page shows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.kubectl import Kubectl
from harness.clients.shell import Shell
from harness.environment import ROOT
from harness.servers.shard_process import ShardProcess

#: The pages with transcripts; those of one page follow each other in one shell.
PAGES = ("README.md", "docs/tutorial.md")
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 90
_MASKS = (
    # Ages, times and names of the machine match any value.
    (re.compile(r"\b\d+(?:m\d+)?(?:s|m|h|d)\b"), "AGE"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\b"), "TIME"),
    (re.compile(r"\b[0-9a-z]{16}\b(?=[^.\w]|$)"), "CLUSTER"),
    (re.compile(r"^(\S+ \"[^\"]+\" deleted).*$", re.MULTILINE), r"\1"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


def transcript(page: str) -> list[tuple[str, str]]:
    """(command with its heredoc, expected output) of the console blocks of a page, in order."""
    steps: list[tuple[str, str]] = []
    lines = iter("".join(_CONSOLE.findall((ROOT / page).read_text())).splitlines())
    for line in lines:
        if not line.startswith("$ "):
            command, output = steps.pop()
            steps.append((command, f"{output}{line}\n"))
            continue
        steps.append((_with_heredoc(line.removeprefix("$ "), lines), ""))
    return steps


def _with_heredoc(command: str, lines: Iterator[str]) -> str:
    found = re.search(r"<<'(\w+)'", command)
    if found is None:
        return command
    body = [command]
    for line in lines:
        body.append(line)
        if line == found[1]:
            return "\n".join(body)
    raise AssertionError(f"the heredoc of {command!r} does not end")


def masked(text: str) -> str:
    for pattern, shown in _MASKS:
        text = pattern.sub(shown, text)
    return text.strip("\n")


def typed(commands: list[str], shell: Shell) -> list[str]:
    """The output of each command of one bash session, with errors in order."""
    end = "~~~ end of output ~~~"
    script = "exec 2>&1\n" + "".join(f"{command}\necho '{end}'\n" for command in commands)
    done = subprocess.run(
        ["/bin/bash"],
        input=script,
        env=shell.environment,
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    *outputs, _ = done.stdout.split(f"{end}\n")
    assert len(outputs) == len(commands), done.stdout
    return outputs


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path) as shard:
        yield shard


@pytest.mark.parametrize("page", PAGES)
def test_the_transcripts_of_a_page_are_true(page: str, fresh: ShardProcess, kubectl: Kubectl, tmp_path: Path) -> None:
    steps = transcript(page)
    assert len(steps) >= 10
    shell = Shell(tmp_path / "shell", Kubectl(tmp_path, fresh.kubeconfig, kubectl.binary))
    printed = typed([command for command, _ in steps], shell)
    expected = "\n".join(f"$ {command}\n{masked(output)}" for command, output in steps)
    assert "\n".join(f"$ {c}\n{masked(o)}" for (c, _), o in zip(steps, printed, strict=True)) == expected


def test_no_page_has_a_transcript_that_is_not_run() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if _CONSOLE.search(path.read_text())]
    assert {str(path.relative_to(ROOT)) for path in pages} == set(PAGES) - {"README.md"}


def test_the_comparison_would_notice_another_output() -> None:
    assert masked("a   12s\n") == masked("a   3m4s  \n")
    assert masked("configmap/a created") != masked("configmap/a configured")
