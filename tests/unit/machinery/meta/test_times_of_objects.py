import pytest

from atoll.machinery.meta.durations import human_duration
from atoll.machinery.meta.times import age, format_micro_time, format_time, now, now_micro, parse_time

M, H, D, Y = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (1.9, "1s"),
        (119, "119s"),
        (120, "2m"),
        (2 * M + 3, "2m3s"),
        (10 * M - 1, "9m59s"),
        (10 * M, "10m"),
        (10 * M + 59, "10m"),
        (3 * H - 1, "179m"),
        (3 * H, "3h"),
        (3 * H + 5 * M, "3h5m"),
        (8 * H, "8h"),
        (8 * H + 30 * M, "8h"),
        (48 * H - 1, "47h"),
        (2 * D, "2d"),
        (2 * D + H, "2d1h"),
        (8 * D, "8d"),
        (8 * D + 5 * H, "8d"),
        (2 * Y - 1, "729d"),
        (2 * Y, "2y"),
        (2 * Y + D, "2y1d"),
        (8 * Y, "8y"),
        (8 * Y + 300 * D, "8y"),
    ],
)
def test_a_duration_is_printed_as_kubectl_prints_it(seconds: float, expected: str) -> None:
    assert human_duration(seconds) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-02T03:04:05Z", 1767323045),
        ("2026-01-02T03:04:05.250000Z", 1767323045.25),
        ("2026-01-02T04:04:05+01:00", 1767323045),
        ("2026-01-01T21:34:05-05:30", 1767323045),
        ("0001-01-01T00:00:00Z", -62135596800),
    ],
)
def test_a_moment_is_read_in_any_zone(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "now", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01t00:00:00z"]
)
def test_what_is_no_moment_gives_none(text: str) -> None:
    assert parse_time(text) is None


def test_moments_are_written_in_utc_to_the_second_or_the_microsecond() -> None:
    assert format_time(1767323045) == "2026-01-02T03:04:05Z"
    assert format_time(-62135596800) == "0001-01-01T00:00:00Z"
    assert format_micro_time(1767323045, 123456789) == "2026-01-02T03:04:05.123456Z"


@pytest.mark.parametrize("seconds", [-62135596801, 253402300800])
def test_years_of_more_than_four_digits_are_refused(seconds: int) -> None:
    with pytest.raises(ValueError, match="years"):
        format_time(seconds)


@pytest.mark.parametrize("nanoseconds", [-1, 1_000_000_000])
def test_nanoseconds_beyond_a_second_are_refused(nanoseconds: int) -> None:
    with pytest.raises(ValueError, match="second"):
        format_micro_time(0, nanoseconds)


def test_the_present_is_written_so_that_it_can_be_read() -> None:
    assert parse_time(now()) is not None
    assert parse_time(now_micro()) is not None
    assert len(now_micro()) == len("2006-01-02T15:04:05.000000Z")


def test_an_absent_timestamp_has_an_unknown_age() -> None:
    assert age("2026-01-02T03:04:05Z", 1767323045 + 123) == "2m3s"
    assert age(None, 0) == age("", 0) == age(5, 0) == "<unknown>"
