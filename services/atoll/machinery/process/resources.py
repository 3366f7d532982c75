"""Paths of the files that the product ships: schemas and default configuration.

Every reader of such a file calls it. In an installed wheel they are in the package as `atoll/_schemas`, in a source
tree in `schemas/` at its root. Invariant: the result never depends on the working directory.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_INSTALLED = _PACKAGE / "_schemas"
_SOURCE = _PACKAGE.parents[1] / "schemas"


@cache
def schema_root() -> Path:
    """The directory of public contracts. Raises FileNotFoundError if the installation is incomplete."""
    for root in (_INSTALLED, _SOURCE):
        if root.is_dir():
            return root
    raise FileNotFoundError(f"neither {_INSTALLED} nor {_SOURCE} exists: the installation is incomplete")


def schema_path(*parts: str) -> Path:
    """The path of a file or directory below the schema root, such as `schema_path("native", "core.json")`."""
    return schema_root().joinpath(*parts)
