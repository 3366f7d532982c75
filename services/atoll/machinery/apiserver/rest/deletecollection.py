"""DELETE on a collection: the selected objects, deleted one by one as single deletes would be."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.call import Call
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.meta.objects import decode
from atoll.machinery.storage.contract import Store

PAGE = 500


def selected(call: Call, store: Store) -> Iterator[tuple[str, str, bytes]]:
    """(namespace, name, stored bytes) of what a deletecollection selects, in key order. Raises Expired."""
    request = listing.checked(call)
    left, after, revision = request.options.limit, request.after, request.at
    while True:
        page = store.page(request.scope, at=revision, after=after, limit=PAGE)
        revision, after = page.revision, page.after
        for value in page.values:
            if request.chosen.matches(value) if not request.chosen.is_everything else True:
                metadata = decode(value)["metadata"]
                yield metadata.get("namespace", ""), metadata["name"], value
                left -= 1
                if request.options.limit and left <= 0:
                    return
        if after is None:
            return
