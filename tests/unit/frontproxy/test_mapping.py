"""The mapping file: the mapping of a path, and errors with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.frontproxy.mapping import (
    DEFAULT,
    MAX_FILE_BYTES,
    Mapping,
    MappingError,
    MappingTable,
    RemoteHeaderNames,
    read,
)
from atoll.machinery.process import pki

CA = pki.make_ca("backends")
PAIR = pki.make_client(CA, "front-proxy", ())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    (tmp_path / "proxy.crt").write_bytes(PAIR.certificate)
    (tmp_path / "proxy.key").write_bytes(PAIR.key)
    return tmp_path


def written(files: Path, text: str) -> Path:
    path = files / "mapping.yaml"
    path.write_text(text.replace("DIR", str(files)))
    return path


def entry(path: str, **more: str) -> str:
    fields = {"path": path, "backend": "https://b.example:6443/", "backend_server_ca": "DIR/ca.crt", **more}
    return "- " + "\n  ".join(f"{name}: {value}" for name, value in fields.items()) + "\n"


def test_a_file_is_read_with_its_names_and_what_it_leaves_out(files: Path) -> None:
    own = {"user_header": "X-User", "group_header": "X-Group", "extra_header_prefix": "X-Extra-"}
    cert = {"proxy_client_cert": "DIR/proxy.crt", "proxy_client_key": "DIR/proxy.key"}
    table = read(written(files, entry("/services/", **own, **cert) + "- path: /clusters/\n" + entry("/")))
    services, clusters, rest = (table.match([part])[0] for part in ("services", "clusters", "x"))
    assert services is not None
    assert clusters is not None
    assert rest is not None
    assert (services.backend, services.names) == (
        "https://b.example:6443",
        RemoteHeaderNames("X-User", "X-Group", "X-Extra-"),
    )
    assert services.client_pair == PAIR
    assert (clusters.is_shards, clusters.backend, clusters.tls) == (True, "", None)
    assert (rest.path, rest.names, rest.client_pair) == ("/", RemoteHeaderNames(), None)


@pytest.mark.parametrize(
    ("path", "chosen", "held"),
    [
        ("clusters/root/api", "/clusters/", ""),
        ("clusters", "/clusters/", ""),
        ("services", "/services/", ""),
        ("services/a/b", "/services/", ""),
        ("services/own", "/services/own/", ""),
        ("services/own/x", "/services/own/", ""),
        ("services/ownership", "/services/", ""),
        ("services/vw/root:a/api", "/services/vw/{cluster}/", "root:a"),
        ("services/vw", "/services/", ""),
        ("services/vw/fixed/x", "/services/vw/fixed/", ""),
        ("exact", "/exact", ""),
        ("exact/x", "/", ""),
        ("", "/", ""),
        ("api/v1", "/", ""),
    ],
)
def test_the_longest_and_most_particular_prefix_wins(path: str, chosen: str, held: str) -> None:
    paths = [
        "/",
        "/services/",
        "/clusters/",
        "/services/vw/{cluster}/",
        "/exact",
        "/services/own/",
        "/services/vw/fixed/",
    ]
    for ordered in (paths, paths[::-1]):
        mapping, found = MappingTable([Mapping(path) for path in ordered]).match(
            [part for part in path.split("/") if part]
        )
        assert (mapping.path if mapping else None, found) == (chosen, held)


def test_what_nothing_is_said_of_goes_nowhere() -> None:
    assert MappingTable([Mapping("/clusters/")]).match(["version"]) == (None, "")


def test_without_a_file_clusters_go_to_shards_and_the_rest_to_root() -> None:
    chosen = [DEFAULT.match([part])[0] for part in ("clusters", "services", "version")]
    assert [mapping.path for mapping in chosen if mapping] == ["/clusters/", "/", "/"]


def test_the_shards_need_no_backend_for_clusters_and_views(files: Path) -> None:
    table = read(written(files, "- path: /services/\n- path: /clusters/\n" + entry("/")))
    assert {mapping.path for mapping in table.mappings if not mapping.backend} == {"/services/", "/clusters/"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "list of mappings"),
        ("a: b\n", 1, "list of mappings"),
        ("- path: /\n  nonsense: [", 2, ""),
        (entry("/") + "- just text\n", 4, "fields path, backend"),
        (entry("/") + entry("/"), 4, "mapped twice"),
        (entry("/", colour="red"), 4, "unknown field 'colour'"),
        ("- backend: https://a\n", 1, "path is missing"),
        (entry("/") + "  path: /x\n", 4, "there twice"),
        (entry("services/"), 1, "begins with /"),
        (entry("/a//b/"), 1, "whole segments"),
        (entry("/a/../b/"), 1, "whole segments"),
        (entry("/a/{x}y/"), 1, "placeholder"),
        (entry("/a/{x}/{x}/"), 1, "placeholder"),
        (entry("/", backend="http://b:80"), 2, "https URL"),
        (entry("/", backend="https://"), 2, "https URL"),
        (entry("/", backend="https://u:p@b"), 2, "https URL"),
        (entry("/", backend="https://b:99999"), 2, "https URL"),
        (entry("/", backend="https://b?x=y"), 2, "https URL"),
        ("- path: /\n", 1, "https URL"),
        ("- path: /\n  backend: https://b\n", 1, "backend_server_ca is missing"),
        (entry("/", backend_server_ca="DIR/none.crt"), 3, "No such file"),
        (entry("/", backend_server_ca="DIR/proxy.key"), 3, "cannot be used"),
        (entry("/", proxy_client_cert="DIR/proxy.crt"), 4, "go together"),
        (entry("/", proxy_client_cert="DIR/proxy.crt", proxy_client_key="DIR/ca.crt"), 3, "cannot be used"),
        (entry("/", user_header='"X User"'), 4, "no name of a header"),
        (entry("/", group_header="[a]"), 4, "not a text"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(files: Path, text: str, line: int, said: str) -> None:
    path = written(files, text)
    with pytest.raises(MappingError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: line {line}: ")
    assert said in str(refused.value)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text("#" + "x" * MAX_FILE_BYTES)
    with pytest.raises(MappingError, match="larger than 1048576 bytes"):
        read(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match="No such file"):
        read(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("paths", "alone"),
    [
        (("/clusters/", "/"), True),
        (("/clusters/", "/services/", "/"), True),
        (("/clusters/", "/clusters/root/"), False),
        (("/clusters/", "/{any}/x/"), False),
        (("/",), False),
    ],
)
def test_paths_of_clusters_are_matched_only_where_another_mapping_may_take_them(
    paths: tuple[str, ...], alone: bool
) -> None:
    table = MappingTable([Mapping(path) for path in paths])
    assert (table.only_shards is not None) == alone
    if table.only_shards is not None:
        for segments in (["clusters", "a"], ["clusters", "root", "services", "x"]):
            assert table.match(segments) == (table.only_shards, "")
