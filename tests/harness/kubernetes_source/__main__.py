"""Compares or writes the files; see the package."""

from __future__ import annotations

import sys

from harness.kubernetes_source import files


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        files.write()
        return 0
    for name in files.differences():
        print(f"differs: {name}")
    return 1 if files.differences() else 0


sys.exit(main(sys.argv[1:]))
