"""The agreement on versions against a second implementation, on random groups."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.versions import Agreement, Offer, agree
from harness.seeds import drawn

#: Highest first, as Kubernetes orders them; not the order of the texts.
ORDER = ("v10", "v2", "v1", "v11beta2", "v11beta1", "v2beta10", "v1beta1", "v3alpha1", "v1alpha1", "foo")
VERSIONS = st.sampled_from(ORDER)


@st.composite
def offers(draw: st.DrawFn) -> list[Offer]:
    found = []
    for name in draw(st.permutations(["a", "b", "c", "d"]))[: draw(st.integers(1, 4))]:
        served = draw(st.frozensets(VERSIONS, min_size=1, max_size=4))
        found.append(Offer(name, served, draw(st.sampled_from(sorted(served)))))
    return found


def rank(versions: set[str] | frozenset[str]) -> int:
    return min(ORDER.index(each) for each in versions)


def second(given: list[Offer], former: str, usable: set[str]) -> Agreement:
    """Take the lowest sources away until all of the rest serve some version."""
    in_order = sorted(given, key=lambda each: (rank(each.served), each.cluster))
    for size in range(len(in_order), 0, -1):
        rest = in_order[:size]
        common = [each for each in ORDER if all(each in offer.served for offer in rest)]
        if not common:
            continue
        common = [each for each in common if each in usable] or common
        liked = [each for each in common if any(each == offer.preferred for offer in rest)] or common
        version = former if former in liked else liked[0]
        left = tuple(sorted(offer.cluster for offer in in_order[size:]))
        return Agreement(version, min(offer.cluster for offer in rest), left)
    raise AssertionError


@settings(max_examples=drawn(300))
@given(offers(), st.one_of(st.just(""), VERSIONS), st.sets(VERSIONS, max_size=3))
def test_the_choice_is_that_of_another_implementation_in_any_order(
    given: list[Offer], former: str, usable: set[str]
) -> None:
    wanted = second(given, former, usable)
    assert agree(given, former, usable) == wanted
    assert agree(given[::-1], former, usable) == wanted


@settings(max_examples=drawn(100))
@given(offers())
def test_a_choice_stays_while_it_is_possible(given: list[Offer]) -> None:
    chosen = agree(given)
    for size in range(1, len(given) + 1):
        for some in combinations(given, size):
            after = agree(list(some), chosen.version)
            if not after.left and all(chosen.version in each.served for each in some):
                is_liked = any(chosen.version == each.preferred for each in some)
                assert after.version == chosen.version or not is_liked
    assert agree(given, chosen.version) == chosen


def offer(cluster: str, *served: str) -> Offer:
    """A workspace that prefers the first version that it serves."""
    return Offer(cluster, frozenset(served), served[0])


def test_versions_are_compared_in_the_order_of_kubernetes() -> None:
    given = [offer("a", "v10", "v2"), offer("b", "v2", "v10")]
    assert agree(given).version == "v10"
    assert agree(given, "v2").version == "v2"
    assert agree([offer("a", "v9"), offer("b", "v10")]) == Agreement("v10", "b", ("a",))
    assert agree([offer("a", "v1"), offer("b", "v2"), offer("c", "v1")]) == Agreement("v2", "b", ("a", "c"))
    assert agree([offer("a", "v1"), offer("b", "v2", "v1"), offer("c", "v1")]) == Agreement("v1", "a")
    assert agree([offer("a", "v2", "v1beta1"), offer("b", "v2beta1")]) == Agreement("v2", "a", ("b",))
