"""The matchConditions of webhooks: whether a webhook is to be asked about a request.

`configured` asks for each webhook whose rules match. Compiled conditions are shared by their texts and bounded in
bytes. Invariant: not thread-safe; each event loop has its own.
"""

from __future__ import annotations

from atoll.machinery.apiserver.admission.chain import Review
from atoll.machinery.apiserver.admission.configured.matching import Request
from atoll.machinery.apiserver.admission.configured.questions import Webhook
from atoll.machinery.apiserver.admission.expressions.conditions import ConditionsFailed, conditions_match
from atoll.machinery.apiserver.admission.expressions.expression import CONDITION, Compiler, Expression
from atoll.machinery.apiserver.admission.expressions.request_values import Authorize, RequestValues
from atoll.machinery.apiserver.call import errors
from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.process.time_slicing import checkpoint

#: Bytes of compiled conditions.
MAX_BYTES = 4 << 20

_Texts = tuple[str, ...]


class _Compiled(tuple[Expression, ...]):
    """The conditions of one webhook."""

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self)


class WebhookConditions:
    """Evaluates match conditions; `authorize` answers what they ask."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize
        self._cached: LruCache[_Texts, _Compiled] = LruCache(MAX_BYTES, lambda found: found.size_bytes)

    def hold(self, review: Review, request: Request, webhook: Webhook, kind: Kind) -> bool:
        """Whether all conditions hold for a request in the version of `kind`.

        Conditions without a value exclude the request under failurePolicy Ignore. Raises Forbidden under Fail.
        """
        values = RequestValues(review, request, kind, self._authorize)
        try:
            return conditions_match(self._compiled(webhook), values)
        except ConditionsFailed as error:
            if webhook.stored.get("failurePolicy") == "Ignore":
                return False
            raise errors.forbidden(request.kind, request.display_name, str(error)) from None

    def _compiled(self, webhook: Webhook) -> _Compiled:
        texts = tuple(text(each, "expression") for _, each in objects(webhook.stored, "matchConditions"))
        found = self._cached.get(texts)
        if found is None:
            compiler = Compiler(params=False, variables=False, pause=checkpoint)
            found = _Compiled(compiler.expression(each, CONDITION) for each in texts)
            self._cached.put(texts, found)
        return found
