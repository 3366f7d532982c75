"""The pages for readers: files and names in them exist, their layers match pyproject, the first page is short."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from atoll.cacheserver.config import CacheServerConfig
from atoll.cli.atoll.main import COMMANDS
from atoll.cli.kubectl import complete_kcp
from atoll.edge.config import EdgeControllersConfig
from atoll.eventgateway.config import EventGatewayConfig
from atoll.frontproxy.config import FrontProxyConfig
from atoll.standalone.site.processes import StartConfig
from atoll.syncer.config import SyncerConfig
from tidy.sources import ROOT

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIRST_PAGE_BYTES = 8 * 1024
#: Paths in the pages start at one of these, or at the page's own folder.
_BASES = (ROOT, ROOT / "services/atoll/machinery")
_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_LINK = re.compile(r"\]\(([^)#]+)")
_PATH = re.compile(r"[.\w-]+(?:/[.\w-]+)*/?")
_MODULE = re.compile(r"(?:atoll|harness)(?:\.[a-z_]\w*)+")
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
#: Resources of an API and files of a running server, which look like paths of this tree.
_OTHER_PATHS = re.compile(r"apiexports/content|DESIGN\.md|\.atoll(/.*)?|store/|nats/|\*.*")
#: Flags of kubectl and its plug-ins, and of tests and commands that are not processes.
_OTHER_FLAGS = {
    "against",
    "external-url",
    "installed-at",
    "events-url",
    *("wait", "build", "no-deps", "volumes"),
    *("servers", "route-port", "store-directory"),
    *("drop", "new-passwords"),
    *(
        "enter",
        "owner",
        "shard",
        "identity",
        "prefix",
        "type",
        "location-selector",
        "server",
        "all-namespaces",
        "replicas",
        "for",
        "from-literal",
        "help",
        "quick",
    ),
    *("help-all", "config", "print-config", "directory", "readers", "subscribers", "event-gateways", "tls-ca-file"),
    *("regions", "leaf-listen", "events-url"),
    *("cacert", "header", "no-buffer", "clusterrole", "serviceaccount", "verb", "resource"),
    *("duration", "minify", "flatten", "raw", "ignore-not-found"),
    *("repair", "from", "to", "in-place", "keys-from", "keys-to", "rate", "to-revision", "to-time"),
    "at",
}


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def quoted(page: Path) -> Iterator[str]:
    """Texts between backticks; of a command that runs tests or benchmarks, each argument."""
    for text in _QUOTED.findall(prose(page)):
        command, *arguments = text.split()
        yield from [*arguments] if command == "bash" else [" ".join((command, *arguments))]


def is_path(text: str) -> bool:
    """Whether quoted text means a file or folder of this tree."""
    if not _PATH.fullmatch(text) or _OTHER_PATHS.fullmatch(text) or "<" in text:
        return False
    return ("/" in text and "." not in text.partition("/")[0]) or text.endswith((".py", ".md"))


def exists(path: str, page: Path) -> bool:
    return any((base / path).exists() for base in (page.parent, *_BASES))


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= FIRST_PAGE_BYTES


def test_every_path_and_link_in_the_pages_exists() -> None:
    wrong = [
        f"{page.name}: {text}" for page in PAGES for text in quoted(page) if is_path(text) and not exists(text, page)
    ]
    for page in PAGES:
        links = [link for link in _LINK.findall(prose(page)) if not link.startswith("https:")]
        wrong += [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]
    assert not wrong


def test_every_path_of_the_map_exists() -> None:
    _, _, behind = (ROOT / "README.md").read_text().partition("## Map\n\n```\n")
    lines = [line for line in behind.partition("```")[0].splitlines() if not line.startswith(" ")]
    assert len(lines) >= 10
    assert not [line for line in lines if not (ROOT / line.split()[0]).exists()]


def test_every_module_in_the_pages_exists() -> None:
    wrong = []
    for page in PAGES:
        for name in {text for text in quoted(page) if _MODULE.fullmatch(text)}:
            # The last part may be something in the module.
            parent = name.rpartition(".")[0]
            if _spec(name) is None and (_spec(parent) is None or not _defines(parent, name.rpartition(".")[2])):
                wrong.append(f"{page.name}: {name}")
    assert not wrong


def _spec(name: str) -> object:
    try:
        return find_spec(name)
    except ModuleNotFoundError:
        return None


def _defines(module: str, name: str) -> bool:
    spec = find_spec(module)
    assert spec is not None
    return bool(spec.origin and re.search(rf"\b{name}\b", Path(spec.origin).read_text()))


def test_every_name_in_the_recipes_is_in_the_code() -> None:
    code = "\n".join(path.read_text() for folder in ("services", "tests") for path in (ROOT / folder).rglob("*.py"))
    words = set(re.findall(r"\w+", code))
    page = ROOT / "docs/contributing.md"
    named = {
        word for text in quoted(page) if not is_path(text) and "<" not in text for word in re.findall(r"\w+", text)
    }
    spelled = {word for word in named if "_" in word or re.fullmatch(r"(?:[A-Z][a-z]+){1,4}", word)}
    assert len(spelled) > 10
    assert not spelled - words


def test_every_flag_in_the_pages_is_one() -> None:
    settings = {
        *StartConfig.__struct_fields__,
        *FrontProxyConfig.__struct_fields__,
        *CacheServerConfig.__struct_fields__,
        *EdgeControllersConfig.__struct_fields__,
        *EventGatewayConfig.__struct_fields__,
        *(flag.lstrip("-") for command in complete_kcp.FLAGS.values() for flag in command),
        *SyncerConfig.__struct_fields__,
    }
    flags = {name.replace("_", "-") for name in settings} | _OTHER_FLAGS
    wrong = {
        f"{page.name}: --{flag}" for page in PAGES for flag in _FLAG.findall(page.read_text()) if flag not in flags
    }
    assert not wrong


def test_every_command_in_the_pages_is_one() -> None:
    told = {
        name for page in PAGES for name in re.findall(r"(?:^|`)atoll ([a-z][a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {"start", "shard"} <= told <= set(COMMANDS)


def test_the_layers_in_the_pages_are_those_that_hold() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    of = {contract["containers"][0]: " > ".join(contract["layers"]) for contract in contracts if "layers" in contract}
    for path in (ROOT / "docs/contributing.md", ROOT / "services/atoll/__init__.py"):
        text = " ".join(path.read_text().split())
        assert of["atoll"] in text
        assert of["atoll.machinery"] in text
