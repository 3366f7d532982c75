"""A terminal in which plug-ins run as their console scripts do, on a kubeconfig for a canned server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.servers.stand_ins.canned_api import CannedApi


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class PluginTerminal:
    """`api` is the server, `file` the kubeconfig. What plug-ins print is taken from the test's own output."""

    def __init__(self, api: CannedApi, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self.file, self._capsys = api, file, capsys

    async def run(self, dispatch: Callable[[list[str]], int], *arguments: str) -> Ran:
        """The output of a plug-in, and its exit code."""
        code = await asyncio.to_thread(dispatch, [*arguments, "--kubeconfig", str(self.file)])
        return Ran(code, *self._capsys.readouterr())
