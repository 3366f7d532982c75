"""Transcripts of pages: the commands of their console blocks with what they print, run in one shell and compared.

steps = transcript("docs/edge.md")
assert replayed(steps, shell) == expected(steps)
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

from harness.clients.shell import Shell
from harness.environment import ROOT

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 240
_MASKS = (
    # Ages, times and names of the machine match any value.
    (re.compile(r"\b\d+(?:m\d+)?(?:s|m|h|d)\b"), "AGE"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\b"), "TIME"),
    (re.compile(r"\b[0-9a-z]{16}\b(?=[^.\w]|$)"), "CLUSTER"),
    (re.compile(r"\b(kubestellar-syncer-\w+)-[0-9a-z]{8}\b"), r"\1-ID"),
    (re.compile(r"^(\S+ \"[^\"]+\" deleted).*$", re.MULTILINE), r"\1"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


def transcript(page: str, section: str = "") -> list[tuple[str, str]]:
    """(command with its heredoc, expected output) of the console blocks of a page or of one section of it, in order."""
    steps: list[tuple[str, str]] = []
    text = (ROOT / page).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = iter("".join(CONSOLE.findall(text)).splitlines())
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


def typed(steps: list[tuple[str, str]], shell: Shell) -> list[str]:
    """The output of each command of one bash session, with errors in order."""
    end = "~~~ end of output ~~~"
    script = "exec 2>&1\n" + "".join(f"{command}\necho '{end}'\n" for command, _ in steps)
    done = subprocess.run(
        ["/bin/bash"],
        input=script,
        env=shell.environment,
        cwd=shell.folder,
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    *outputs, _ = done.stdout.split(f"{end}\n")
    assert len(outputs) == len(steps), done.stdout
    return outputs


def expected(steps: list[tuple[str, str]]) -> str:
    """What a page shows, with what differs from run to run masked."""
    return "\n".join(f"$ {command}\n{masked(output)}" for command, output in steps)


def replayed(steps: list[tuple[str, str]], shell: Shell) -> str:
    """What the commands print, masked likewise."""
    return expected([(command, output) for (command, _), output in zip(steps, typed(steps, shell), strict=True)])
