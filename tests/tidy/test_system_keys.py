"""Each annotation, label and finalizer of kcp's and Atoll's domains in the sources has a row of who writes it."""

from __future__ import annotations

import ast
import re

from atoll.shard.admission.system_keys import SYSTEM_KEYS
from tidy.sources import parsed, source_files

_KEY = re.compile(r"([a-z0-9-]+\.)*(kcp\.io|atoll\.dev)/([A-Za-z][A-Za-z0-9._-]*/?)?")
_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
#: Keys of other things.
OTHERS = {
    # Extras of users.
    "authentication.kcp.io/scopes",
    "authentication.kcp.io/cluster-name",
    "authorization.kcp.io/warrant",
    "authentication.atoll.dev/front-proxy",
    "experimental.authorization.kcp.io/original-username",
    "experimental.authorization.kcp.io/original-groups",
    # Labels of workspaces of `kubectl kcp quickstart`.
    "kcp.io/quickstart",
    "kcp.io/quickstart-prefix",
    # Entries of a Shard's capacity.
    "used.atoll.dev/workspaces",
    "used.atoll.dev/objects",
    "used.atoll.dev/storage",
    # A claim of tokens for events.
    "atoll.dev/cluster",
    # Audit events, and contexts of a kubeconfig.
    "tenancy.kcp.io/workspace",
    "workspace.kcp.io/current",
    "workspace.kcp.io/previous",
    # Prefixes: of annotations that conversion makes and takes away, of labels that the store indexes.
    "apis.v1alpha2.kcp.io/",
    "paths.internal.atoll.dev/",
}


def spelled() -> dict[str, str]:
    """Each such text in the sources, and one place of it."""
    return {
        node.value: f"{path.stem}:{node.lineno}"
        for path in source_files()
        if _KEY.search(path.read_text())
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _KEY.fullmatch(node.value)
    }


def test_every_key_in_the_sources_has_a_row() -> None:
    keys = {key: place for key, place in spelled().items() if not _VERSION.fullmatch(key.partition("/")[2])}
    assert "internal.atoll.dev/moved-to" in keys
    rows = {row.key for row in SYSTEM_KEYS}
    assert {key: place for key, place in keys.items() if key not in rows | OTHERS} == {}
    assert OTHERS - set(keys) == set()
