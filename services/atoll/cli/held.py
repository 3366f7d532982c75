"""`python -m atoll.cli.held COMMAND`: loads a command of `atoll`, waits for its arguments on standard input, runs it.

`standalone` starts so what is to work later than it can be loaded. Invariant: without arguments, as whoever started it
ended, it does nothing.
"""

from __future__ import annotations

import sys

import msgspec

from atoll.cli.atoll.main import loaded


def main() -> None:
    """Load, wait, run."""
    command = loaded(sys.argv[1])
    if arguments := sys.stdin.buffer.read():
        sys.exit(command(msgspec.json.decode(arguments, type=list[str])))


if __name__ == "__main__":
    main()
