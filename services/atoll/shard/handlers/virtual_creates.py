"""Creates that store nothing: access reviews, token reviews and token requests."""

from __future__ import annotations

from msgspec.structs import replace

from atoll.machinery.apiserver.authentication.token_issuer import account_key
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.rest.body import check_small, decode_body
from atoll.machinery.apiserver.rest.present import document
from atoll.machinery.apiserver.serving.resources import Special
from atoll.machinery.apiserver.serving.reviews import Reviews
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.kinds.reviews import TOKENREQUEST
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.authentication import ShardAuthentication


def virtual_creates(identity: ShardAuthentication, reviews: Reviews) -> dict[tuple[str, str, str], Special]:
    """Return the handlers of creates that store nothing, by group, plural and subresource."""
    found: dict[tuple[str, str, str], Special] = {}
    for kind in NATIVE:
        if kind.verbs == ("create",):
            found[kind.group, kind.plural, ""] = lambda call, snapshot: _review(reviews, call, snapshot)
    found["", "serviceaccounts", "token"] = lambda call, snapshot: _token(identity, call, snapshot)
    return found


def _review(reviews: Reviews, call: Call, snapshot: Snapshot) -> Reply:
    check_small(call)
    obj = decode_body(call, call.info.query.get("fieldValidation", "") or "Warn")
    return document(call.form, reviews.review(call, obj, snapshot, deep=call.deep), 201)


def _token(identity: ShardAuthentication, call: Call, snapshot: Snapshot) -> Reply:
    record = snapshot.get(call.key(call.info.name))
    if record is None:
        raise errors.not_found(call.kind, call.info.name)
    check_small(call)
    obj = decode_body(replace(call, kind=TOKENREQUEST), "Ignore")
    key = account_key(call.cluster, call.info.namespace, call.info.name)
    answer, warnings = identity.issuer.token_request(obj, key, snapshot)
    call.warnings.extend(warnings)
    return document(call.form, answer, 201)
