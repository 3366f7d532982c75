from __future__ import annotations

import pytest

from atoll.machinery.schema.formats import check_of, is_recognized

UUID = "0d1f0c2e-1b2a-4c3d-8e4f-0123456789ab"

FITS = {
    "date-time": [
        "2026-01-02T03:04:05Z",
        "2024-02-29T23:59:59.123456Z",
        "2026-01-31t03:04:05z",
        "2026-01-02T03:04:05+02:00",
    ],
    "date": ["2026-12-31", "2024-02-29", "0000-01-01"],
    "duration": ["1h30m", "1.5s", "-2ms", "0", "10 seconds", "1 d", "5 µs", "+1h"],
    "email": ["a@b.c", "Anna <a@b.example>"],
    "uri": ["https://a.b/c?d=e#f", "/path", "urn:x:y", "mailto:a@b"],
    "uuid": [UUID, UUID.upper(), UUID.replace("-", "")],
    "uuid4": [UUID],
    "byte": ["YQ==", "YWI=", "YWJj", "+/+/"],
    "ipv4": ["10.0.0.1", "010.0.0.01", "::ffff:10.0.0.1"],
    "ipv6": ["::1", "fe80::1", "::ffff:10.0.0.1"],
    "cidr": ["10.0.0.0/8", "::/0", "10.0.0.1/32"],
    "hostname": ["example.com", "a", "ex-ample.co", "müller.example"],
    "mac": ["00:00:5e:00:53:01", "02-00-5e-10-00-00-00-01", "0000.5e00.5301"],
    "isbn": ["0321751043", "978-0321751041"],
    "isbn10": ["0-321-75104-3"],
    "isbn13": ["978-0321751041"],
    "creditcard": ["4111 1111 1111 1111"],
    "ssn": ["123-45-6789", "123456789"],
    "hexcolor": ["#FFFFFF", "fff"],
    "rgbcolor": ["rgb(0, 1,255)"],
    "bsonobjectid": ["507f1f77bcf86cd799439011"],
    "password": ["", "anything"],
    "k8s-short-name": ["a", "a-1"],
    "k8s-long-name": ["a.b-c", "a"],
}
FITS_NOT = {
    "date-time": [
        "2026-01-02",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:04:05",
        "2026-13-02T03:04:05Z",
        "2023-02-29T00:00:00Z",
        "x",
        "2026-01-02T03:04:60Z",
    ],
    "date": ["2026-1-2", "2023-02-29", "2026-04-31", "", "2026-01-02T"],
    "duration": ["", "1", "h", "1 parsec"],
    "email": ["", "a", "a@", "@b", "a b@c"],
    "uri": ["", "x", "a b", "/%zz", "http://[::1"],
    "uuid": ["", UUID[:-1], UUID + "0", "g" + UUID[1:]],
    "uuid4": ["0d1f0c2e-1b2a-1c3d-8e4f-0123456789ab"],
    "byte": ["", "YQ", "YQ=x", "Y===", "a-b_"],
    "ipv4": ["1.2.3", "256.1.1.1", "::1", "1.2.3.4.5", "a.b.c.d", ""],
    "ipv6": ["1.2.3.4", ":::", "fe80::1%eth0", ""],
    "cidr": ["10.0.0.1", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/x"],
    "hostname": ["", "a_b", "a" * 64 + ".com", ".a"],
    "mac": ["00:00:5e:00:53", "00:00-5e:00:53:01", "x"],
    "isbn": ["0321751044", "978-0321751042", ""],
    "creditcard": ["4111 1111 1111 1112", "1"],
    "ssn": ["12-345-6789"],
    "hexcolor": ["#FFFF", "#GGG"],
    "rgbcolor": ["rgb(256,0,0)", "rgb(0,0)"],
    "bsonobjectid": ["507f1f77bcf86cd79943901"],
    "k8s-short-name": ["", "A", "-a", "a" * 64, "a.b"],
    "k8s-long-name": ["", "a..b", "A", "a" * 254],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FITS.items() for text in texts])
def test_a_text_of_the_form_passes(name: str, text: str) -> None:
    check = check_of("string", name)
    assert check is not None
    assert check(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FITS_NOT.items() for text in texts])
def test_another_text_does_not(name: str, text: str) -> None:
    check = check_of("string", name)
    assert check is not None
    assert not check(text)


def test_formats_belong_to_types() -> None:
    assert is_recognized("integer", "int32") and is_recognized("number", "double") and is_recognized("", "ipv4")
    assert not is_recognized("integer", "uint8")
    assert not is_recognized("boolean", "date")
    assert not is_recognized("string", "int32")
    assert check_of("integer", "date") is None
    assert check_of("string", "unheard-of") is None
