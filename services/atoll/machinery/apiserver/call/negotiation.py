"""Content negotiation: plain JSON, Table, PartialObjectMetadata, YAML, Kubernetes protobuf.

The pipeline calls `choose` with the Accept header; verb handlers and discovery encode in the chosen form. Clauses are
tried by q, then in order; the first with a served type and served parameters wins, as in Kubernetes. Results are
cached by header text (bounded).
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from atoll.machinery.meta.status import NotAcceptable

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_SERVED = f"{JSON}, {YAML}"
_WILDCARDS = ("*/*", "application/*")
_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_META_VERSIONS = ("v1", "v1beta1")
MAX_ACCEPT = 4096


class Form(msgspec.Struct, frozen=True):
    """The form of a reply. `transform`: empty, Table, PartialObjectMetadata or PartialObjectMetadataList."""

    media_type: str = JSON
    transform: str = ""
    version: str = "v1"

    @property
    def is_plain(self) -> bool:
        """Whether stored bytes may be sent unchanged."""
        return not self.transform and self.media_type == JSON


PLAIN = Form()


class Clause(msgspec.Struct, frozen=True):
    """One clause of an Accept header."""

    media_type: str
    parameters: dict[str, str]
    quality: float


@lru_cache(maxsize=512)
def clauses(accept: str) -> tuple[Clause, ...]:
    """Return the clauses of an Accept header, best first. Raises NotAcceptable for an oversized header."""
    if len(accept) > MAX_ACCEPT:
        raise NotAcceptable(f"only the following media types are accepted: {_SERVED}")
    parsed = [_clause(part) for part in accept.split(",") if part.strip()]
    return tuple(sorted(parsed, key=lambda clause: -clause.quality))


def _clause(text: str) -> Clause:
    media_type, *rest = (part.strip() for part in text.split(";"))
    parameters: dict[str, str] = {}
    for part in rest:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return Clause(media_type.lower(), parameters, quality)


@lru_cache(maxsize=512)
def choose(accept: str, *, transforms: bool = True, protobuf: bool = False) -> Form:
    """Return the form for an object or a list. Raises NotAcceptable.

    `transforms` False: no Tables, no metadata. `protobuf`: whether the reply can be in Kubernetes protobuf.
    """
    if not accept.strip():
        return PLAIN
    for clause in clauses(accept):
        form = _form(clause, protobuf)
        if form is not None and clause.quality > 0 and (transforms or not form.transform):
            return form
    served = f"{_SERVED}, {PROTOBUF}" if protobuf else _SERVED
    raise NotAcceptable(f"only the following media types are accepted: {served}")


def _form(clause: Clause, protobuf: bool) -> Form | None:
    if clause.media_type in _WILDCARDS:
        media_type = JSON
    elif clause.media_type in {JSON, YAML} or (protobuf and clause.media_type == PROTOBUF):
        media_type = clause.media_type
    else:
        return None
    transform = clause.parameters.get("as", "")
    if not transform:
        # Clients also send `stream=watch`, which changes nothing.
        return None if "g" in clause.parameters else Form(media_type)
    if transform not in _TRANSFORMS or clause.parameters.get("g") != "meta.k8s.io":
        return None
    if transform == "Table" and media_type == PROTOBUF:
        # It has no message.
        return None
    version = clause.parameters.get("v", "")
    return Form(media_type, transform, version) if version in _META_VERSIONS else None
