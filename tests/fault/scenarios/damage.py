"""Bits flipped in a stopped shard's file: a later read is right or an error, and never wrong.

Objects have unique texts; one bit in each copy of some of them is flipped so that the JSON stays valid, and only a
checksum can detect it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fault.traffic.shardapi import CONFIGMAPS, ShardApi
from fault.validators.violation import WrongAnswer
from harness.servers.shard_process import ShardProcess

COUNT, DAMAGED = 20, 8


def text_of(number: int) -> str:
    return f"what object {number:03d} says"


async def write_objects(shard: ShardProcess) -> None:
    async with ShardApi(shard) as api:
        client = api.client("root")
        for number in range(COUNT):
            document = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"cold-{number}"},
                "data": {"text": text_of(number)},
            }
            await client.create(CONFIGMAPS, document, "default")


def flip(path: Path, number: int) -> None:
    """Flip one bit of an object's text at every place in the file."""
    data = bytearray(path.read_bytes())
    needle, at, found = text_of(number).encode(), 0, 0
    while (at := data.find(needle, at)) >= 0:
        data[at] ^= 0x02
        found += 1
    assert found, f"object {number} is not in the file"
    path.write_bytes(data)


async def validate_reads(shard: ShardProcess) -> int:
    """Read every object; return the number of errors. Raises WrongAnswer."""
    refused = 0
    async with ShardApi(shard) as api:
        for number in range(COUNT):
            answer = await api.ask("GET", f"/clusters/root/api/v1/namespaces/default/configmaps/cold-{number}")
            if answer.status >= 500:
                refused += 1
            elif text_of(number).encode() not in answer.body:
                raise WrongAnswer(f"object {number} was served as {answer.body[:200]!r}")
    return refused


def served_after_damage(shard: ShardProcess) -> int:
    """Run the whole scenario; return the number of rejected reads."""
    with shard:
        asyncio.run(write_objects(shard))
    for number in range(DAMAGED):
        flip(shard.root / "store" / "data.mdb", number)
    with shard:
        return asyncio.run(validate_reads(shard))
