"""Validates power-cut images: `python -m fault.scenarios.images TRACE DIRECTORY COUNT SEED FIRST PHASE`.

It runs in its own process, because mapping a torn file may end the process. It prints `begin N` before each image and
`end N` with the violation (or nothing) after it, so that its parent knows the fatal image and continues after it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import lmdb
import msgspec

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import CorruptRecord, Scope
from atoll.machinery.storage.environment.filesystem import DATA_FILE, OWNER_FILE
from atoll.machinery.storage.environment.opening import UnknownFormat
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.writing.writer import StoreClosed
from fault.faults.powercut import Image, Recorded, events, first_submit, images, named
from fault.model.log import Stored, read
from fault.traffic.transactions import Line, options
from fault.validators.durability import replay_is_the_table, store_is_sound, submits_are_whole
from fault.validators.violation import LostWrite, StoreDamaged, Violation

_VALIDATION_TIMEOUT_S = 600
_TESTS = Path(__file__).parents[2]
#: What a damaged store raises; it ends with StoreClosed where the writer was the first to notice.
_DAMAGE = (
    lmdb.Error,
    UnknownFormat,
    CorruptRecord,
    StoreClosed,
    msgspec.DecodeError,
    struct.error,
    KeyError,
    ValueError,
)
_line = msgspec.json.Decoder(Line).decode


def submits(recorded: list[Recorded]) -> tuple[dict[int, dict[str, int]], set[int]]:
    """The submits by index, and which of them were acknowledged."""
    begun: dict[int, dict[str, int]] = {}
    acked: set[int] = set()
    for one in recorded:
        if one.kind == "A":
            line = _line(one.data)
            if line.index in begun:
                acked.add(line.index)
            else:
                begun[line.index] = line.writes
    return begun, acked


class Phase(StrEnum):
    """The operation of the store during which the power fails."""

    #: Submits one after the other, with a log that holds them all.
    SUBMITS = "submits"
    #: Submits with a log that is compacted between them.
    COMPACTION = "compaction"
    #: Its first opening: the file is made under another name, then has its own.
    CREATION = "creation"

    def part(self, recorded: list[Recorded]) -> tuple[int, int]:
        """The part of the events in which the cuts of this phase are."""
        if self is Phase.CREATION:
            return 0, first_submit(recorded)
        return first_submit(recorded), len(recorded)


def validate(image: Image, recorded: list[Recorded], directory: Path, phase: Phase) -> None:
    """Open one image as the store would after the power came back. Raises Violation."""
    store = directory / str(image.number)
    store.mkdir()
    where = store / "new" if phase is Phase.CREATION and image.at < named(recorded) else store
    where.mkdir(exist_ok=True)
    (where / DATA_FILE).write_bytes(image.data)
    (store / OWNER_FILE).touch()
    try:
        asyncio.run(_open_and_close(store))
        if phase is Phase.COMPACTION:
            _validate_keys(store, recorded[: image.at])
            return
        stored = read(options(store))
    except _DAMAGE as error:
        raise StoreDamaged(f"{type(error).__name__}: {error}") from error
    store_is_sound(stored)
    replay_is_the_table(stored)
    _validate_submits(stored, recorded[: image.at])


async def _open_and_close(store: Path) -> None:
    opened = open_store(options(store), alarm=lambda *_event, **_facts: None, fatal=lambda reason: None)
    await opened.close()


def _validate_submits(stored: Stored, before: list[Recorded]) -> None:
    begun, acked = submits(before)
    there = {tag: entries[0] for tag, entries in stored.log.by_tag.items()}
    for index in sorted(acked):
        for tag in begun[index]:
            if tag not in there:
                raise LostWrite(f"submit {index} was acknowledged, {tag} is not there")
    for index, writes in begun.items():
        for tag, checksum in writes.items():
            if tag in there and _checksum(there[tag].image.data["pad"]) != checksum:
                raise LostWrite(f"{tag} of submit {index} says something else")
    submits_are_whole([list(writes) for writes in begun.values()], set(there))


def _validate_keys(store: Path, before: list[Recorded]) -> None:
    """Each key has its last acknowledged value, or a later submitted one; the log need not have it."""
    problems = [f"{problem.where} {problem.key}: {problem.what}" for problem in fsck(options(store))]
    if problems:
        raise StoreDamaged("; ".join(problems[:5]))
    possible: dict[str, list[str]] = {}
    begun: dict[int, Line] = {}
    for one in before:
        line = _line(one.data) if one.kind == "A" else None
        if line is not None and line.index in begun:
            possible.update({name: [tag] for name, tag in begun[line.index].keys.items()})
        elif line is not None:
            begun[line.index] = line
            for name, tag in line.keys.items():
                possible.setdefault(name, [""]).append(tag)
    there = dict(asyncio.run(_tags(store)))
    for name, tags in possible.items():
        if there.get(name, "") not in tags:
            raise LostWrite(f"{name} holds {there.get(name)!r}, and not one of {tags}")


async def _tags(store: Path) -> list[tuple[str, str]]:
    opened = open_store(options(store), alarm=lambda *_event, **_facts: None, fatal=lambda reason: None)
    try:
        values = opened.page(Scope(ResourceType("", "configmaps"), "root")).values
        return [(each["metadata"]["name"], each["data"]["tag"]) for each in map(msgspec.json.decode, values)]
    finally:
        await opened.close()


def _checksum(text: str) -> int:
    from google_crc32c import value as crc32c

    return int(crc32c(text.encode()))


def violations_of(trace: Path, directory: Path, count: int, seed: int, phase: Phase = Phase.SUBMITS) -> dict[int, str]:
    """Validate images in child processes; return the violations by number of image."""
    found: dict[int, str] = {}
    first = 0
    while first < count:
        arguments = map(str, (trace, directory, count, seed, first, phase))
        command = [sys.executable, "-m", "fault.scenarios.images", *arguments]
        paths = os.pathsep.join((str(_TESTS.parent / "services"), str(_TESTS)))
        child = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=_VALIDATION_TIMEOUT_S,
            check=False,
        )
        last = first - 1
        for line in child.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word not in {"begin", "end"}:
                continue
            number, _, said = rest.partition(" ")
            last = int(number)
            if word == "end" and said:
                found[last] = said
        if child.returncode >= 0:
            assert child.returncode == 0, child.stderr[-3000:]
            return found
        found[last] = f"the process was ended by signal {-child.returncode}"
        first = last + 1
    return found


def main(arguments: list[str]) -> None:
    trace, directory = Path(arguments[0]), Path(arguments[1])
    count, seed, first = map(int, arguments[2:5])
    phase = Phase(arguments[5])
    directory.mkdir(exist_ok=True)
    recorded = events(trace)
    for image in images(recorded, count, seed, phase.part(recorded)):
        if image.number < first:
            continue
        sys.stdout.write(f"begin {image.number} \n")
        sys.stdout.flush()
        said = ""
        try:
            validate(image, recorded, directory, phase)
            shutil.rmtree(directory / str(image.number))
        except Violation as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
        sys.stdout.write(f"end {image.number} {said}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
