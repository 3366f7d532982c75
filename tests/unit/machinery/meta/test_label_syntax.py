import pytest

from atoll.machinery.meta import labels

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize("name", ["a", "a.b", "a-b.c-d", "0", "x" * 253])
def test_a_subdomain_is_taken(name: str) -> None:
    assert labels.dns_subdomain_errors(name) == []


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a\n", "ä"])
def test_other_names_are_told_the_shape_of_a_subdomain(name: str) -> None:
    assert labels.dns_subdomain_errors(name) == [SUBDOMAIN]


def test_a_long_subdomain_is_told_its_limit() -> None:
    assert labels.dns_subdomain_errors("x" * 254) == ["must be no more than 253 characters"]


def test_a_label_has_no_dots() -> None:
    assert labels.dns_label_errors("a-1") == []
    assert labels.dns_label_errors("a.b") == ["must not contain dots"]
    assert labels.dns_label_errors("x" * 64) == ["must be no more than 63 characters"]
    assert "a lowercase RFC 1123 label must consist" in labels.dns_label_errors("A")[0]


def test_a_dns_1035_label_begins_with_a_letter() -> None:
    assert labels.dns_1035_label_errors("v1") == []
    assert "start with an alphabetic character" in labels.dns_1035_label_errors("1v")[0]


def test_a_path_segment_is_anything_that_stays_one_segment() -> None:
    assert labels.path_segment_errors("system:kcp:admin") == []
    assert labels.path_segment_errors("..") == ["may not be '..'"]
    assert labels.path_segment_errors("a/b%c") == ["may not contain '/'", "may not contain '%'"]


@pytest.mark.parametrize("key", ["a", "A_b.c-1", "example.com/a", "x" * 63, "a" * 253 + "/b"])
def test_a_label_key_may_have_a_domain(key: str) -> None:
    assert labels.label_key_errors(key) == []


@pytest.mark.parametrize(
    ("key", "errors"),
    [
        ("", ["name part must be non-empty", KEY_NAME]),
        ("-a", [KEY_NAME]),
        ("x" * 64, ["name part must be no more than 63 bytes"]),
        ("/a", ["prefix part must be non-empty"]),
        ("A.b/a", [f"prefix part {SUBDOMAIN}"]),
    ],
)
def test_other_label_keys_are_told_what_is_wrong(key: str, errors: list[str]) -> None:
    assert labels.label_key_errors(key) == errors


def test_a_label_key_has_one_slash_at_most() -> None:
    (error,) = labels.label_key_errors("a/b/c")
    assert error.startswith("a valid label key must consist of")
    assert error.endswith(" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")


def test_a_label_value_may_be_empty_and_has_63_bytes_at_most() -> None:
    assert labels.label_value_errors("") == labels.label_value_errors("a.b_C-1") == []
    assert labels.label_value_errors("x" * 64) == ["must be no more than 63 bytes"]
    assert "a valid label must be an empty string or consist of" in labels.label_value_errors("a b")[0]


def test_a_config_key_is_a_plain_file_name() -> None:
    assert labels.config_key_errors("tls.crt") == labels.config_key_errors(".env") == []
    assert labels.config_key_errors("..") == ["must not be '..'"]
    assert labels.config_key_errors("..a") == ["must not start with '..'"]
    assert (
        labels.config_key_errors("a/b")
        == labels.config_key_errors("")
        == [
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        ]
    )
