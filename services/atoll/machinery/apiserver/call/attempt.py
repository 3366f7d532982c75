"""What the plannings of one attempt of a write share.

`writing.commit` makes an Attempt for each attempt to write. A plan that lacks an answer is made again: a new object
then has the same uid and generated name as before, so that a question about it is the same question. After a conflict
with another writer everything is asked anew, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.uids import new_uid


class Attempt(msgspec.Struct):
    """The identity of a new object, and the answers that were fetched, by the content of their questions."""

    #: Empty without one.
    uid: str = ""
    #: The generated name; empty without one.
    generated_name: str = ""
    answers: dict[Hashable, Any] = {}
    #: What a batch lacks: it is planned as if all were accepted, and again with the answers. None: the plan ends.
    postponed: list[MissingAnswer] | None = None
    #: The answer that a planning at once lacked: it is fetched before the write is planned again.
    lacking: MissingAnswer | None = None
    #: What admission observed for the metrics in the last planning, and whether that is counted.
    observed: dict[Any, Any] = {}
    is_counted: bool = False

    def new_uid(self) -> str:
        """Return the uid of the new object."""
        self.uid = self.uid or new_uid()
        return self.uid
