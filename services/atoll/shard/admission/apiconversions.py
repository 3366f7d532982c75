"""APIConversions on their way in: rules that fit the versions of the schema they are named after.

Stands for kcp's plug-in apis.kcp.io/APIConversion. Compiling takes time, so it runs beside the kind's own checks; what
is found there refuses the write in kcp's words. Invariant: rules that were let in compile for as long as their schema
is there, since a schema never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.call.errors import forbidden
from atoll.machinery.kinds.apiconversion import Rules
from atoll.machinery.kinds.checks import mapping, text
from atoll.machinery.kinds.kind import Judge, Verdict
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import FieldError
from atoll.machinery.meta.types import API_RESOURCE_SCHEMAS

_OWN = ("apis.kcp.io", "apiconversions")


class ApiConversions:
    """Guards APIConversions."""

    def mutate(self, review: Review) -> None:
        """Have the rules compiled where there is a schema to compile them against."""
        if review.group_resource != _OWN or review.obj is None:
            return
        schema = _schema(review)
        if schema is not None:
            versions = {each["name"]: each["schema"] for each in schema["spec"]["versions"]}
            review.judges.append(_compiling(review, versions))

    def validate(self, review: Review) -> None:
        if review.group_resource != _OWN or review.obj is None:
            return
        name = review.obj["metadata"]["name"]
        if _schema(review) is None:
            found = f'error getting APIResourceSchema {name}: apiresourceschemas.apis.kcp.io "{name}" not found'
            raise forbidden(review.call.kind, name, found)


def _schema(review: Review) -> Object | None:
    """The APIResourceSchema beside the APIConversion, which has its name."""
    assert review.obj is not None
    name = text(review.obj, "metadata", "name")
    record = review.view.get(ObjectKey(API_RESOURCE_SCHEMAS, review.call.cluster, "", name)) if name else None
    return decode(record.value) if record is not None else None


def _compiling(review: Review, versions: dict[str, Object]) -> Judge:
    def judge(obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]) -> Verdict:
        if errors:
            # What breaks the schema of an APIConversion is told as that.
            return Verdict([], [])
        wrong = Rules(mapping(obj, "spec"), versions).errors(pause)
        if wrong:
            shown = "; ".join(map(str, wrong))
            name = obj["metadata"]["name"]
            raise forbidden(review.call.kind, name, f"error compiling conversion rules: {shown}")
        return Verdict([], [])

    return judge
