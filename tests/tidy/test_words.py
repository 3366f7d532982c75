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
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tidy.sources import ROOT, name_of, parse, source_files

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
        "judge",
        "judged",
        "judges",
        "verdict",
        "verdicts",
        "whoever",
        "somebody",
        "nobody",
    ]
)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


_NAME = re.compile(r"[A-Za-z_]\w*")
#: Comments and strings: prose has the words.
_TEXTS = re.compile(r'#[^\n]*|"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])*'")
_WELL_KNOWN = re.compile("well_?known", re.IGNORECASE)


@cache
def parts(name: str) -> set[str]:
    """The words of a name; "well known" is Kubernetes' own term."""
    return {part.lower() for part in _PARTS.findall(_WELL_KNOWN.sub("", name))}


def named_files() -> Iterator[Path]:
    yield from source_files()
    yield from (ROOT / "tests").rglob("*.py")
    yield from (ROOT / "loadtest").rglob("*.py")


def names(module: ast.Module) -> Iterator[str]:
    """Classes, functions, parameters, attributes and module constants that a module defines."""
    for node in ast.walk(module):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
        if isinstance(node, ast.Module | ast.ClassDef):
            yield from assigned(node.body)


def assigned(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_the_words_are_found_in_names() -> None:
    assert parts("_AskedElsewhere") & WORDS == {"asked", "elsewhere"}
    assert not parts("always_gateway") & WORDS
    assert not parts("WELL_KNOWN_KEYS") & WORDS


def test_every_kind_of_name_is_found() -> None:
    module = """
KNOWN = 1
TOLD: int = 2
class Asked:
    shown: int
    def there(self, door, *, way=0):
        self.heard = elsewhere = 3
"""
    assert set(names(ast.parse(module))) == {"KNOWN", "TOLD", "Asked", "shown", "there", "self", "door", "way", "heard"}


def is_sentence(path: Path, name: str) -> bool:
    """Whether a name is that of a test or of a module of tests, which states a behaviour in a sentence."""
    return path.is_relative_to(ROOT / "tests") and name.startswith("test_")


def has_words(path: Path) -> bool:
    """Whether a name in a file may have one of the words. Parsing the others takes ten seconds."""
    code = _TEXTS.sub("", path.read_text())
    return any(parts(word) & WORDS and not is_sentence(path, word) for word in set(_NAME.findall(code)))


@pytest.mark.timeout(600)
def test_names_have_none_of_these_words() -> None:
    found = {
        f"{name_of(path)}: {path.stem}"
        for path in named_files()
        if parts(path.stem) & WORDS and not is_sentence(path, path.stem)
    }
    for path in named_files():
        if not has_words(path):
            continue
        worded = (name for name in names(parse(path)) if parts(name) & WORDS)
        found |= {f"{name_of(path)}: {name}" for name in worded if not is_sentence(path, name)}
    assert not found
