"""Re-sealing of a running shard's Secrets after `atoll rotate` added a key.

`runner` runs it. The key file is looked at each second: what is written from then on is sealed with the new key, and
what is stored is sealed again in small steps, `PAUSE_S` apart, so that other writes go on. Invariant: a rotation that a
crash cut off is completed after the next start, as a file with several keys is gone through then; one with a single key
costs nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from atoll.machinery.process.file_watch import on_change
from atoll.machinery.storage import sealing
from atoll.machinery.storage.contract import StoreFull
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.machinery.storage.sealing import KeyFileInvalid

log = structlog.get_logger()

#: Between two steps, each of 128 objects or 1 MiB.
PAUSE_S = 0.05
_AGAIN_S = 10.0


async def reseal_on_change(store: LmdbStore, key_file: Path) -> None:
    """Seal all objects with the primary key of the file whenever it changes, until cancelled."""
    changed = asyncio.Event()
    await asyncio.gather(on_change([str(key_file)], changed.set), _reseal(store, key_file, changed))


async def _reseal(store: LmdbStore, key_file: Path, changed: asyncio.Event) -> None:
    while True:
        await changed.wait()
        changed.clear()
        try:
            if len(sealing.numbers(key_file)) > 1:
                objects = await store.reseal(PAUSE_S)
                log.info("objects re-sealed", objects=objects)
        except KeyFileInvalid as error:
            log.error("sealing keys not reloaded", reason=str(error))
        except StoreFull:
            log.warning("objects not re-sealed: the store is full", again_s=_AGAIN_S)
            await asyncio.sleep(_AGAIN_S)
            changed.set()
