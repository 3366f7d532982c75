"""Targets are parsed alike whether their collection is known or not."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from atoll.machinery.apiserver.call import requestinfo
from atoll.machinery.apiserver.call.requestinfo import RequestInfo, parse
from atoll.machinery.meta.status import ApiError

WORDS = "api apis v1 clusters root root:a services watch namespaces default configmaps status finalize a.b 0-sample x:h"
ODD = ["", ".", "..", "A", "%61", "a?b=c", "a?watch=1", "?b=/api/c", "~", "system%3Afoo", "a" * 60]
segments = st.sampled_from([*WORDS.split(), *ODD])


def outcome(parser: object, method: str, target: bytes) -> RequestInfo | str:
    assert callable(parser)
    try:
        found: RequestInfo = parser(method, target)
    except ApiError as error:
        return error.message
    return found


@given(st.sampled_from(["GET", "POST", "PUT", "DELETE", "BREW"]), st.lists(segments, max_size=9))
@example("GET", ["clusters", "root"])
@example("GET", ["clusters", "root", "api", "v1", "namespaces", "default", "configmaps", "one"])
@example("GET", ["api", "v1", "namespaces", "default", "status"])
@example("GET", ["api", "v1", "namespaces", "default"])
@example("GET", ["api", "v1", "watch", "configmaps"])
@example("GET", ["services", "x", "clusters", "root", "api", "v1", "configmaps", "one"])
def test_a_target_is_parsed_as_if_it_was_the_only_one(method: str, parts: list[str]) -> None:
    target = b"/" + "/".join(parts).encode()
    assert outcome(parse, method, target) == outcome(requestinfo._parse, method, target)
