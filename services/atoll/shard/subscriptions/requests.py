"""Answers requests about subscriptions: made, shown, listed, removed, and a token to read them.

`view` sends them as commands (`commands`), from any process of the shard; this runs beside the keeper. Every request
shows a credential, which counts for an hour at most: each one renews the owner's subscriptions in its cluster.
Invariant: nobody is shown or removes another identity's subscription, and one that was refused leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.authentication.token_issuer import IssuedToken
from atoll.machinery.apiserver.authorization.effective_users import scope_of
from atoll.machinery.apiserver.call import errors
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import (
    ApiError,
    BadRequest,
    Conflict,
    Details,
    Forbidden,
    Invalid,
    NotFound,
    ServiceUnavailable,
)
from atoll.machinery.meta.user import is_service_account
from atoll.machinery.stream.connection import ApiError as StreamError
from atoll.machinery.stream.connection import Unavailable
from atoll.machinery.stream.credential_file import InvalidCredentialFile
from atoll.machinery.stream.tenants.subscriber_permissions import SLOTS, TENANTS_API, identity
from atoll.machinery.stream.tenants.subscription_consumer import ACK_WAIT_S
from atoll.machinery.stream.tenants.subscriptions import (
    Mark,
    Refused,
    Subscription,
    SubscriptionList,
    SubscriptionRequest,
    Token,
)
from atoll.shard.subscriptions.access_check import AccessDecision, Question
from atoll.shard.subscriptions.commands import Command, CommandAnswer, answer, decode_command, encode, refusal
from atoll.shard.subscriptions.consumers import Consumers
from atoll.shard.subscriptions.entry import Entry
from atoll.shard.subscriptions.keeper import Keeper, from_moment, from_sequence
from atoll.shard.subscriptions.limits import CREDENTIAL_S, SKEW_S
from atoll.shard.subscriptions.records import StoredSubscription

_GROUP, _RESOURCE = "events.atoll.dev", "subscriptions"
_CONNECT_S = 4.0
_UNITS = {"s": 1, "m": 60, "h": 3600}
_NOT_STREAMED, _LIMIT = "NotStreamed", "Limit"
#: Makes a token for a user, of one cluster alone if that is not empty.
Issue: TypeAlias = Callable[[str, str, float], IssuedToken]


class Requests:
    """`issue` signs tokens, `event_keys` are the keys of all shards by which events are verified."""

    def __init__(self, keeper: Keeper, issue: Issue, event_keys: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._keeper, self._issue, self._event_keys = keeper, issue, event_keys
        self._making: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._running: set[asyncio.Task[CommandAnswer]] = set()
        #: Requests, and resources of those that were granted, that were refused, by reason.
        self.refusals: Counter[str] = Counter()

    async def ask(self, data: bytes) -> bytes:
        """Answer an encoded command (`commands.Ask`). What is begun is ended, even if nobody waits for it any more."""
        task = asyncio.create_task(self._answer(decode_command(data)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return encode(await asyncio.shield(task))

    async def _answer(self, command: Command) -> CommandAnswer:
        owner = identity(command.user.name, scope_of(command.user))
        lock = self._making.get(owner)
        if lock is None:
            lock = self._making[owner] = asyncio.Lock()
        try:
            async with lock:
                await self._renew(command, owner)
                if not self._keeper.index.of_owner(owner, command.cluster) and not self._may_enter(command):
                    raise _no_access(command)
                return await self._answers[command.verb](self, command, owner)
        except ApiError as error:
            self.refusals[_LIMIT if isinstance(error, _LimitReached) else error.reason] += 1
            return refusal(error)
        except (OSError, InvalidCredentialFile) as error:
            return refusal(_unavailable(f"event subscribers are not served here: {error}"))
        except (Unavailable, StreamError) as error:
            return refusal(_unavailable(f"the stream of changes is not available: {error}"))

    def _may_enter(self, command: Command) -> bool:
        return self._keeper.may_enter(command.user, command.cluster)

    async def _renew(self, command: Command, owner: str) -> None:
        """Have the owner's subscriptions in the cluster rest on the credential that was shown.

        Those of an earlier account of the same name are removed: they are not this one's.
        """
        for entry in self._keeper.index.of_owner(owner, command.cluster):
            if is_service_account(command.user.name) and command.user.uid != entry.stored.user.uid:
                await self._keeper.remove(entry)
                continue
            before, expires_s = entry.stored, _counts_until(command)
            if command.user == before.user:
                expires_s = max(expires_s, before.expires_s)
            entry.stored = replace(before, user=command.user, expires_s=expires_s, used_s=time.time())
            entry.unsaved = True
            if command.user != before.user or before.state != "Active":
                await self._keeper.check_again(entry)

    # --- one subscription

    async def _create(self, command: Command, owner: str) -> CommandAnswer:
        request = _request(command.body)
        keeper = self._keeper
        found = keeper.index.find(owner, command.cluster, request.name)
        if found is not None:
            if not _is_same(found.stored.request, request):
                raise Conflict(
                    f'{_RESOURCE}.{_GROUP} "{request.name}" exists with other content', _details(request.name)
                )
            return answer(200, self._document(found))
        keeper.keys()
        expires_s = _counts_until(command)
        question = Question(command.cluster, command.user, request.resources, request.identity, request.full)
        decision = await keeper.decision(question, expires_s)
        _require(decision, request)
        self.refusals.update(each.reason for each in decision.refused)
        slot = self._free_slot(owner, command.cluster, request)
        consumers = await keeper.consumers(_CONNECT_S)
        if consumers is None:
            raise _unavailable("the stream of changes is not available")
        stored = StoredSubscription(
            owner=owner,
            cluster=command.cluster,
            slot=slot,
            request=request,
            user=command.user,
            expires_s=expires_s,
            state=decision.state,
            reason=decision.reason,
            selected=decision.selected,
            refused=decision.refused,
            begin=Mark("", "", 1),
            acked=0,
            used_s=time.time(),
            since_s=time.time() - _ago_s(request) - (SKEW_S if request.identity else 0.0),
        )
        entry = Entry(stored)
        await keeper.make(consumers, entry, decision, await self._start(consumers, request))
        if request.identity:
            await keeper.others.until_parts(entry.stored)
        return answer(201, self._document(entry))

    async def _start(self, consumers: Consumers, request: SubscriptionRequest) -> Object:
        since = request.since
        if isinstance(since, str) and since != "now":
            return from_moment(time.time() - _ago_s(request))
        stream = await consumers.stream()
        if isinstance(since, str):
            return from_sequence(stream.last + 1)
        if (since.created, since.lineage) != (stream.created, self._keeper.lineage):
            # The stream was made anew: all of it comes after what the mark stands for.
            return {"deliver_policy": "all"}
        return from_sequence(min(since.sequence, stream.last + 1))

    def _free_slot(self, owner: str, cluster: str, request: SubscriptionRequest) -> int:
        limits, index = self._keeper.limits, self._keeper.index
        # One of an identity needs the same slot on every shard: each shard begins elsewhere, so that no two choose one.
        first = 1 + zlib.crc32(self._keeper.shard.encode()) % (SLOTS - 1) if request.identity else 0
        slot = index.free_slot(owner, limits.per_identity, first)
        if slot is None:
            raise _LimitReached(f"you have {limits.per_identity} subscriptions, the limit of an identity")
        if index.count_of(cluster) >= limits.per_workspace:
            raise _LimitReached(f"the workspace has {limits.per_workspace} subscriptions, its limit")
        return slot

    async def _get(self, command: Command, owner: str) -> CommandAnswer:
        entry = self._own(command, owner)
        await self._keeper.look_at(entry)
        return answer(200, self._document(entry))

    async def _list(self, command: Command, owner: str) -> CommandAnswer:
        found = self._keeper.index.of_owner(owner, command.cluster)
        return answer(200, SubscriptionList(tuple(map(self._document, found))))

    async def _delete(self, command: Command, owner: str) -> CommandAnswer:
        entry = self._own(command, owner)
        document = self._document(entry)
        await self._keeper.remove(entry)
        return answer(200, document)

    def _own(self, command: Command, owner: str) -> Entry:
        entry = self._keeper.index.find(owner, command.cluster, command.name)
        if entry is None:
            raise NotFound(f'{_RESOURCE}.{_GROUP} "{command.name}" not found', _details(command.name))
        return entry

    async def _token(self, command: Command, owner: str) -> CommandAnswer:
        token = self._issue(command.user.name, scope_of(command.user), time.time())
        return answer(201, Token(token.text, times.format_time(token.expires_s)))

    _answers: Mapping[str, Callable[[Requests, Command, str], Awaitable[CommandAnswer]]] = {
        "create": _create,
        "get": _get,
        "list": _list,
        "delete": _delete,
        "token": _token,
    }

    def _document(self, entry: Entry) -> Subscription:
        stored, keys, limits = entry.stored, self._keeper.keys(), self._keeper.limits
        names = self._keeper.names(stored.owner)
        return Subscription(
            name=stored.request.name,
            cluster=stored.cluster,
            state=stored.state,
            reason=stored.reason,
            resources=stored.selected,
            refused=stored.refused,
            consumer=names.consumers[stored.slot],
            streams=self._keeper.parts(stored),
            api_prefix=TENANTS_API,
            inbox_prefix=names.inbox,
            control=f"{names.inbox}.control",
            servers=keys.servers,
            ca=keys.ca,
            event_keys={shard: tuple(each) for shard, each in self._event_keys().items()},
            ack_wait=f"{ACK_WAIT_S}s",
            max_ack_pending=limits.consumer.ack_pending,
            lag=entry.lag,
        )


class _LimitReached(Forbidden):
    """One subscription more than allowed."""

    def __init__(self, text: str) -> None:
        super().__init__(_forbidden_text(text), _details(""))


def _request(body: bytes) -> SubscriptionRequest:
    """Read a request. Raises BadRequest for what is not JSON, Invalid for what the schema does not allow."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    try:
        return msgspec.convert(document, SubscriptionRequest)
    except msgspec.ValidationError as error:
        raise _invalid("", str(error)) from error


def _ago_s(request: SubscriptionRequest) -> float:
    """How far back a request wants to begin; a mark is of one stream, so others begin now."""
    since = request.since
    return int(since[:-1]) * _UNITS[since[-1]] if isinstance(since, str) and since != "now" else 0.0


def _require(decision: AccessDecision, request: SubscriptionRequest) -> None:
    """Raise Invalid for a resource that is not on the stream, Forbidden if nothing asked for may be delivered."""
    missing = [each for each in decision.refused if each.reason == _NOT_STREAMED]
    if missing:
        raise _invalid(request.name, "; ".join(f"{_name(each)}: {each.message}" for each in missing))
    if not decision.selected:
        raise _forbidden(decision.reason, request.name)


def _name(refused: Refused) -> str:
    return f"{refused.resource}.{refused.group}" if refused.group else refused.resource


def _is_same(stored: SubscriptionRequest, wanted: SubscriptionRequest) -> bool:
    """Whether a request asks for what is there; where that began does not matter."""
    return replace(stored, since="now") == replace(wanted, since="now")


def _counts_until(command: Command) -> float:
    latest = time.time() + CREDENTIAL_S
    return min(command.expires_s, latest) if command.expires_s else latest


def _details(name: str) -> Details:
    return Details(name, _GROUP, _RESOURCE)


def _no_access(command: Command) -> ApiError:
    if command.user.is_master:
        return errors.unknown_workspace(command.cluster)
    return _forbidden("access denied")


def _forbidden(text: str, name: str = "") -> Forbidden:
    return Forbidden(_forbidden_text(text, name), _details(name))


def _forbidden_text(text: str, name: str = "") -> str:
    quoted = f' "{name}"' if name else ""
    return f"{_RESOURCE}.{_GROUP}{quoted} is forbidden: {text}"


def _invalid(name: str, text: str) -> Invalid:
    return Invalid(f'Subscription.{_GROUP} "{name}" is invalid: {text}', Details(name, _GROUP, "Subscription"))


def _unavailable(text: str) -> ServiceUnavailable:
    return ServiceUnavailable(text, Details(retry_after_s=1))
