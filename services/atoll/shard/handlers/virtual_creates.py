"""Creates that store nothing: access reviews, token reviews and token requests."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.namespaces import NamespaceLifecycle
from atoll.machinery.apiserver.authentication.token_issuer import account_key
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Plan, Reply, View
from atoll.machinery.apiserver.call.options import write_options
from atoll.machinery.apiserver.rest.body import check_small, decode_body
from atoll.machinery.apiserver.rest.present import document
from atoll.machinery.apiserver.serving.resources import Special
from atoll.machinery.apiserver.serving.reviews import Reviews
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.kinds.reviews import TOKENREQUEST
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.authentication import ShardAuthentication

_LIFECYCLE = NamespaceLifecycle()


def virtual_creates(
    identity: ShardAuthentication, reviews: Reviews, core: WriteService
) -> dict[tuple[str, str, str], Special]:
    """Return the handlers of creates that store nothing, by group, plural and subresource."""
    found: dict[tuple[str, str, str], Special] = {}
    for kind in NATIVE:
        if kind.verbs == ("create",):
            found[kind.group, kind.plural, ""] = lambda call, snapshot: _review(reviews, call, snapshot)
    found["", "serviceaccounts", "token"] = lambda call, snapshot: core.commit(
        call, lambda call, view: _planned_token(identity, core, call, view)
    )
    return found


def _review(reviews: Reviews, call: Call, snapshot: Snapshot) -> Reply:
    check_small(call)
    obj = decode_body(call, call.info.query.get("fieldValidation", "") or "Warn")
    return document(call.form, reviews.review(call, obj, snapshot, deep=call.deep), 201)


class _TokenAnswer(msgspec.Struct, frozen=True):
    """The reply to a token request, which stores nothing."""

    body: Reply

    def reply(self, revisions: Sequence[int]) -> Reply:
        return self.body


def _planned_token(identity: ShardAuthentication, core: WriteService, call: Call, view: View) -> Plan:
    """Return a token for a service account, if webhooks and policies accept the request for it."""
    if view.get(call.key(call.info.name)) is None:
        raise errors.not_found(call.kind, call.info.name)
    check_small(call)
    obj = decode_body(replace(call, kind=TOKENREQUEST), "Ignore")
    review = Review(
        call=call,
        group_resource=(call.kind.group, call.kind.plural),
        operation="create",
        subresource="token",
        obj=obj,
        old=None,
        view=view,
        dry_run=write_options(call.info.query, call.user_agent, "CreateOptions").dry_run,
        settler=lambda changed, before: {**before, "spec": changed.get("spec") or {}},
    )
    _LIFECYCLE.mutate(review)
    core.admission.review_unstored(review)
    key = account_key(call.cluster, call.info.namespace, call.info.name)
    answer, warnings = identity.issuer.token_request(review.result, key, view)
    call.warnings.extend(warnings)
    return Plan(answer=_TokenAnswer(document(call.form, answer, 201)))
