"""Prints `schema_names.json`, made of all other files: in a process of its own, as these may have just been written."""

from __future__ import annotations

import json

from atoll.machinery.kinds.kubernetes.resource_schemas import resource_schema
from atoll.machinery.kinds.kubernetes.tables import rows


def made() -> str:
    """Return the text of the file."""
    prefixes = {name: resource_schema(name)["metadata"]["name"].partition(".")[0] for name in rows()}
    return json.dumps(prefixes, indent=1) + "\n"


if __name__ == "__main__":
    print(made(), end="")
