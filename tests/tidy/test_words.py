"""Names are nouns that an engineer of Kubernetes or kcp would search for: some words are not used in them.

| before | after |
|---|---|
| `farshard.py` | `fake_shard.py` |
| `heard.py` | `proxy_audit.py` |
| `siteuse.py` | `site_operations.py` |
| `closed.py` | `unknown_workspace.py` |
| `misses.py` | `path_fallback.py` |
| `routing.py` | `workspace_locator.py` |
| `Audited` | `AuditedRequest` |
| `Compacted` | `RevisionCompacted` |
| `Lane` | `StreamWriter` |
| `Origin` | `SourceShard` |

A name that still has such a word stands in `STANDING`, which only gets shorter.
"""

from __future__ import annotations

import ast
import re

from tidy.sources import parsed, source_files

WORDS = frozenset(
    [
        "elsewhere",
        "there",
        "door",
        "doors",
        "way",
        "ways",
        "settled",
        "told",
        "asked",
        "known",
        "anew",
        "shown",
        "heard",
        "judged",
        "whoever",
        "somebody",
        "nobody",
    ]
)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def parts(name: str) -> set[str]:
    return {part.lower() for part in _PARTS.findall(name)}


def names() -> set[str]:
    """Files, classes and functions of services whose name has one of the words."""
    defined = {path.stem for path in source_files()} | {
        node.name
        for path in source_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name for name in defined if parts(name) & WORDS}


def test_the_words_are_found_in_names() -> None:
    assert parts("_AskedElsewhere") & WORDS == {"asked", "elsewhere"}
    assert not parts("always_gateway") & WORDS


def test_names_have_none_of_these_words() -> None:
    assert names() <= STANDING


STANDING: frozenset[str] = frozenset(
    [
        "_asked",
        "_follow_there",
        "_is_from_elsewhere",
        "_is_settled",
        "_is_told",
        "_judged",
        "_known",
        "_known_users",
        "_release_elsewhere",
        "_require_known",
        "_settled",
        "_shown",
        "_there",
        "_told",
        "_way",
        "are_known",
        "asked",
        "elsewhere",
        "gzip_if_asked",
        "heard",
        "judged",
        "keep_told",
        "known",
        "owner_elsewhere",
        "settled",
        "shown",
        "stands_elsewhere",
        "told",
        "told_revision",
    ]
)
