"""Sums of what several processes expose."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from atoll.shard.shard_metrics import merged


def exposition(count: int, *observed: float, **more: int) -> bytes:
    """The metrics of one process; `more` are further counts by label."""
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests, by \\ and\nwhom.", ("who",), registry=registry)
    for who, number in {"a b} 1": count, **more}.items():
        counter.labels(who).inc(number)
    Gauge("open", "Open ones.", registry=registry).set(count)
    histogram = Histogram("seconds", "Times.", buckets=(0.1, 1.0), registry=registry)
    for each in observed:
        histogram.observe(each)
    return generate_latest(registry)


def values(text: bytes) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_counters_histograms_and_gauges_are_summed() -> None:
    found = values(merged([exposition(3, 0.05, 5.0), exposition(4, 0.5, c=2), exposition(0)]))
    assert found == {
        ("requests_total", "a b} 1"): 7.0,
        ("requests_total", "c"): 2.0,
        ("open",): 7.0,
        ("seconds_bucket", "0.1"): 1.0,
        ("seconds_bucket", "1.0"): 2.0,
        ("seconds_bucket", "+Inf"): 3.0,
        ("seconds_count",): 3.0,
        ("seconds_sum",): 5.55,
    }


def test_one_exposition_stays_as_it_is_and_each_family_has_one_head() -> None:
    text = exposition(3, 0.05, c=1)
    assert values(merged([text])) == values(text)
    several = merged([text, exposition(1), text]).decode().splitlines()
    heads = [line for line in several if line.startswith("#")]
    assert sorted(set(heads)) == sorted(heads)


def test_of_starts_and_of_limits_of_descriptors_the_least_counts_and_memory_is_summed() -> None:
    names = "process_start_time_seconds", "process_max_fds", "process_resident_memory_bytes"
    one, other = (
        "".join(f"# HELP {name} x\n# TYPE {name} gauge\n{name} {number}.0\n" for name in names).encode()
        for number in (5, 7)
    )
    assert [line for line in merged([one, other]).decode().splitlines() if not line.startswith("#")] == [
        *(f"{name} 5.0" for name in names[:2]),
        f"{names[2]} 12.0",
    ]


def test_of_times_of_creation_the_first_counts() -> None:
    early, late = b"# HELP a_created x\n# TYPE a_created gauge\na_created 5.0\n", b"# HELP a_created x\na_created 7.0\n"
    assert b"a_created 5.0\n" in merged([late, early])
