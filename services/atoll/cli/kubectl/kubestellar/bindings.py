"""APIBindings that the plug-in makes where they are missing, with every claim of the export accepted."""

from __future__ import annotations

from atoll.cli.kubectl.bind import Answers, bind_export, manifest
from atoll.cli.kubectl.claims import ACCEPTED
from atoll.cli.kubectl.workspaces import BINDINGS
from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import spec_of

TIMEOUT_S = 30.0


async def ensure_bound(client: Client, name: str, path: str, export: str) -> None:
    """Bind an export, unless one of its name is bound, and wait until it is served. Raises Failure, ApiError."""
    for each in (await client.list(BINDINGS))["items"]:
        if (spec_of(each).get("reference", {}).get("export") or {}).get("name") == export:
            return
    await bind_export(client, manifest(name, path, export), Answers({}, ACCEPTED), TIMEOUT_S)
