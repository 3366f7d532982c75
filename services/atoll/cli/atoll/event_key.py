"""`atoll rotate-event-key`: adds a key that signs the events of a shard.

Called by `main`. The file is `event-keys.json` of a shard's root directory, or a shard's NATS credential file with its
keys. The shard announces the key at its next start, and signs with it once the lead is over. Invariant: no secret
key is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from atoll.cli.atoll.output import fail
from atoll.machinery.process.ed25519 import SecretKey
from atoll.machinery.stream.event_keys import LEAD_S, OVERLAP_S, InvalidKeysFile, rotate_key


def rotate(arguments: Sequence[str]) -> int:
    """Add the key and print its public half. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    try:
        added = rotate_key(Path(found.file))
    except (InvalidKeysFile, OSError) as error:
        return fail(str(error))
    sys.stdout.write(
        f"{SecretKey(added.secret).public}\n"
        f"Restart the shard now. It announces this key, and signs with it in {LEAD_S // 60} minutes;"
        f" the earlier one is believed for {OVERLAP_S // 3600} hours more.\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    text = "Add a key that signs the events of a shard."
    parser = argparse.ArgumentParser(prog="atoll rotate-event-key", description=text, allow_abbrev=False)
    parser.add_argument("file", help="event-keys.json of the shard's root directory, or its NATS credential file")
    return parser
