"""A state machine over one real store, in a directory of its own; `fsck` has the last word."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.sealing import ensure_key_file
from harness.data.stores import HandClock, store_options


class StoreMachine(RuleBasedStateMachine):
    """Runs a store of these options, on a clock moved by hand."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = tempfile.TemporaryDirectory()
        self.time = HandClock()
        key_file = Path(self.home.name) / "keys.json"
        ensure_key_file(key_file)
        self.options = store_options(Path(self.home.name) / "store", key_file=str(key_file), **options)
        self.store = open_store(self.options, clock=self.time.clock())

    def close(self) -> None:
        """Close the store. `fsck` finds nothing."""
        self.loop.run_until_complete(self.store.close())
        assert fsck(self.options) == []

    def reopen(self) -> None:
        self.close()
        self.store = open_store(self.options, clock=self.time.clock())

    def teardown(self) -> None:
        try:
            self.close()
        finally:
            self.loop.close()
            self.home.cleanup()
