"""Every file below `infra` is taken by a test: the table names it, and the words in it by which it does."""

from __future__ import annotations

from fnmatch import fnmatch

from tidy.sources import ROOT

#: Files below `infra`: the module below `tests` that starts, renders or reads them, and how it names them.
USED = {
    ".env.example": ("integration/deployment/test_compose_file.py", "infra/.env.example"),
    "Dockerfile": ("harness/servers/container_engine.py", "infra/Dockerfile"),
    "compose.yaml": ("harness/servers/compose_site.py", "infra/compose.yaml"),
    "dashboards/alerts.yaml": ("harness/clients/prometheus.py", '"alerts.yaml"'),
    "dashboards/dashboards.yaml": ("tidy/test_dashboards.py", "script.files()"),
    "dashboards/write.py": ("tidy/test_dashboards.py", '"write.py"'),
    "haproxy/haproxy.cfg": ("integration/deployment/test_haproxy.py", "infra/haproxy/haproxy.cfg"),
    "haproxy/site.cfg": ("harness/servers/compose_site.py", 'copytree(ROOT / "infra"'),
    "helm/write_readme.py": ("integration/go/test_chart.py", '"write_readme.py"'),
    "helm/atoll/README.md": ("integration/go/test_chart.py", 'CHART / "README.md"'),
    "helm/atoll/monitoring/*": ("tidy/test_dashboards.py", "script.WRITTEN"),
    "helm/atoll/*": ("integration/go/test_chart.py", "rendered("),
    "image/bill_of_materials.py": ("integration/deployment/test_compose.py", "infra/image/bill_of_materials.py"),
    "image/build": ("harness/servers/container_engine.py", "infra/image/build"),
    "image/lock.py": ("integration/deployment/test_lock.py", "infra/image/lock.py"),
    "image/requirements.lock": ("integration/deployment/test_lock.py", "infra/image/requirements.lock"),
    "nats/README.md": ("integration/stream/test_state_sourced.py", "infra/nats"),
    "nats/hub.conf": ("harness/servers/nats_regions.py", '"hub"'),
    "nats/region.conf": ("harness/servers/nats_regions.py", '"region"'),
    "nats/streams/region.json": ("harness/servers/site_region.py", "streams/region.json"),
    "nats/streams/tenant.json": ("integration/stream/test_state_sourced.py", 'source("root", "tenant"'),
}


def test_every_file_of_infra_is_taken_by_a_test() -> None:
    infra = ROOT / "infra"
    files = [path.relative_to(infra).as_posix() for path in infra.rglob("*") if path.is_file()]
    files = [name for name in files if "__pycache__" not in name]
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in USED)] == []
    assert [pattern for pattern in USED if not any(fnmatch(name, pattern) for name in files)] == []


def test_every_row_names_a_test_that_takes_the_file() -> None:
    wrong = [name for name, (test, words) in USED.items() if words not in (ROOT / "tests" / test).read_text()]
    assert wrong == []
