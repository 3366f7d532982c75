"""A computation that lacks an answer which only waiting brings, and goes on or is made again with the answer at hand.

A write is planned synchronously inside of a snapshot of the store. What needs a call to somebody else, such as an
object converted by a webhook or the decision of an admission webhook, raises this; the writing service leaves the
snapshot, fetches the answer and goes on with the plan, or plans again. Invariant: a plan changes nothing but its own
objects, so that it may be abandoned anywhere.
"""

from __future__ import annotations


class MissingAnswer(Exception):
    """Ends a computation. Subclasses say what is missing and how it is fetched."""

    async def fetch(self) -> None:
        """Fetch the answer to where the next computation finds it. Raises the ApiError of a failed call.

        Raises the exception itself where nobody has an answer: the computation was made where it cannot wait.
        """
        raise self
