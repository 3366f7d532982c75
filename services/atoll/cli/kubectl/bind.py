"""`kubectl kcp bind apiexport`: bind the API of another workspace, answer its claims, wait until it is bound.

Called by `kcp`. If the flags answer claims, the export is read first, so that the binding is created with its answers;
a consumer that may bind the export but not read it takes the claims from the binding's status. Invariant: exit code 0
means Bound, with every claim answered as the flags say.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.claims import (
    ACCEPTED,
    REJECTED,
    answer_claims,
    parse_group_resource,
    resource_name,
    unclaimed_failure,
)
from atoll.cli.kubectl.plugin import Failure, common_flags, duration_s, load_context, run, say
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.cli.kubectl.workspaces import BINDINGS, EXPORTS, claim_key, warn_of_claims
from atoll.machinery.client.client import Client
from atoll.machinery.meta.hashes import is_identity
from atoll.machinery.meta.objects import Object, conditions_of, spec_of, status_of
from atoll.machinery.meta.status import AlreadyExists, Conflict, Forbidden, NotFound
from atoll.machinery.meta.wellknown import PINNED_IDENTITY
from atoll.machinery.process.retry import ATTEMPTS

Key = tuple[str, str, str]


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    options = _parser().parse_args(list(arguments))
    return run(_bind(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl kcp bind",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Bind an API that another workspace exports, and wait until it is served here.",
    )
    parser.add_argument("kind", choices=("apiexport",))
    parser.add_argument("export", metavar="PATH:NAME", help="workspace and name of the APIExport")
    parser.add_argument("--name", default="", help="name of the APIBinding; that of the export if left out")
    parser.add_argument(
        "--identity",
        type=_identity,
        metavar="HASH",
        help="bind only an export with this identity hash, also if it is made anew under its path",
    )
    parser.add_argument("--timeout", type=duration_s, default=30.0, metavar="30s", help="how long to wait")
    for verb in ("accept", "reject"):
        one_or_all = parser.add_mutually_exclusive_group()
        one_or_all.add_argument(
            f"--{verb}-permission-claim",
            action="append",
            default=[],
            metavar="RESOURCE.GROUP",
            help=f"{verb} this claim; several, or several with commas between",
        )
        one_or_all.add_argument(f"--{verb}-all-permission-claims", action="store_true", help=f"{verb} every claim")
    return parser


def _identity(text: str) -> str:
    if not is_identity(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no identity hash: 64 hexadecimal digits in lower case")
    return text


async def _bind(options: argparse.Namespace) -> None:
    answers = _answers(options)
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        path, name = reference(client.target.workspace, options.export)
        binding = manifest(options.name or name, path, name)
        if options.identity:
            binding["metadata"]["annotations"] = {PINNED_IDENTITY: options.identity}
        await bind_export(client, binding, answers, options.timeout)


async def bind_export(client: Client, binding: Object, answers: Answers, timeout_s: float) -> None:
    """Create a binding with the answers to its export's claims, and wait until it is bound. Raises Failure."""
    export = binding["spec"]["reference"]["export"]
    claims = await _claims_of(client, export["path"], export["name"]) if answers else None
    if claims is not None:
        answer_claims(binding, *answers.to(claims))
    binding = await _created(client, binding)
    shown = binding["metadata"]["name"]
    say(f'APIBinding "{shown}" created. Waiting for it to be bound...')
    binding = await _bound(client, binding, timeout_s)
    if answers and claims is None:
        binding = await _answered(client, binding, answers)
    say(f'APIBinding "{shown}" is bound.')
    warn_of_claims(binding)


def _answers(options: argparse.Namespace) -> Answers:
    """Return the answers of the flags. Raises Failure if they contradict each other."""
    accepted = _each(options.accept_permission_claim, ACCEPTED)
    rejected = _each(options.reject_permission_claim, REJECTED)
    if both := accepted.keys() & rejected.keys():
        raise Failure(f"the claim on {resource_name(min(both))} cannot be both accepted and rejected")
    if options.accept_all_permission_claims and options.reject_all_permission_claims:
        raise Failure("claims cannot all be both accepted and rejected")
    everything = ACCEPTED if options.accept_all_permission_claims else ""
    return Answers({**accepted, **rejected}, REJECTED if options.reject_all_permission_claims else everything)


class Answers:
    """Answers to claims: `one` by group and resource, `everything` to all others; false without any."""

    def __init__(self, one: dict[tuple[str, str], str], everything: str) -> None:
        self._one, self._all = one, everything

    def __bool__(self) -> bool:
        return bool(self._one or self._all)

    def to(self, claims: list[Object]) -> tuple[dict[Key, str], list[Object]]:
        """Return the state by key, and the answered claims.

        Raises Failure for a claim that the export does not make.
        """
        missing = sorted(set(self._one) - {claim_key(claim)[:2] for claim in claims})
        if missing:
            raise unclaimed_failure(missing, claims)
        states = {claim_key(claim): self._one.get(claim_key(claim)[:2], self._all) for claim in claims}
        return states, [claim for claim in claims if states[claim_key(claim)]]


def _each(flags: Sequence[str], state: str) -> dict[tuple[str, str], str]:
    return {parse_group_resource(text): state for flag in flags for text in flag.split(",")}


def reference(current: str, text: str) -> tuple[str, str]:
    """Return workspace path and name of an export reference. Raises Failure.

    A path is used unchanged, since it may be the name of a logical cluster; one that begins with `.` or `:` is resolved
    from the current workspace.
    """
    path, colon, name = workspaces.normalize(text).rpartition(":")
    if not name or not (path or colon):
        raise Failure(f'"{text}" does not say in which workspace the export is; write it as in root:provider:{text}')
    return workspaces.resolve(current, path or ":") if path[:1] in {"", ".", ":"} else path, name


def manifest(name: str, path: str, export: str) -> Object:
    """Return an APIBinding to the export of another workspace."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": path, "name": export}}},
    }


async def _claims_of(client: Client, path: str, name: str) -> list[Object] | None:
    """Return the claims of an export; None if the caller may not read it."""
    try:
        export = await client.cluster(path).get(EXPORTS, name)
    except (Forbidden, NotFound):
        return None
    return list(spec_of(export).get("permissionClaims") or ())


async def _created(client: Client, wanted: Object) -> Object:
    name, export = wanted["metadata"]["name"], wanted["spec"]["reference"]["export"]
    try:
        return await client.create(BINDINGS, wanted)
    except AlreadyExists:
        raise Failure(
            f'APIBinding "{name}" exists already in workspace {client.target.workspace}; choose another with --name,'
            f" or answer its claims by kubectl kcp claims accept {name}"
        ) from None
    except Forbidden as error:
        # The server responds alike for a missing export and one that the caller may not bind.
        raise Failure(
            f"{error}\nEither {export['path']} has no APIExport {export['name']}, or its owner has not allowed you the"
            " verb bind on it."
        ) from error


async def _bound(client: Client, binding: Object, timeout_s: float) -> Object:
    """Return the binding once it is Bound and lists the export's claims, which another controller may add later."""
    try:
        bound = await until(client, BINDINGS, binding, _is_bound, timeout_s)
    except WaitTimeout as late:
        raise Failure(_unbound(late.latest, timeout_s)) from None
    try:
        return await until(client, BINDINGS, bound, _knows_claims, timeout_s)
    except WaitTimeout as late:
        return late.latest


def _is_bound(binding: Object) -> bool:
    return bool(status_of(binding).get("phase") == "Bound")


def _knows_claims(binding: Object) -> bool:
    conditions = conditions_of(binding)
    return any(each["type"] == "PermissionClaimsValid" for each in conditions)


def _unbound(binding: Object, timeout_s: float) -> str:
    name = binding["metadata"]["name"]
    failing = [each for each in conditions_of(binding) if each["status"] != "True" and each["type"] != "Ready"]
    # Several conditions may fail for one reason.
    reasons = {each.get("message") or each.get("reason") or each["type"]: None for each in failing}
    why = f": {'; '.join(reasons)}" if reasons else ""
    return (
        f'APIBinding "{name}" is not bound after {timeout_s:g} s{why}\n'
        f"It will be once that is resolved; kubectl delete apibinding {name} takes it back."
    )


async def _answered(client: Client, binding: Object, answers: Answers) -> Object:
    """Answer the claims in the status of a bound binding. Return the updated binding."""
    for _ in range(ATTEMPTS):
        claims = list(status_of(binding).get("exportPermissionClaims") or ())
        answer_claims(binding, *answers.to(claims))
        try:
            return await client.update(BINDINGS, binding)
        except Conflict:
            binding = await client.get(BINDINGS, binding["metadata"]["name"])
    raise Failure(f'APIBinding "{binding["metadata"]["name"]}" changes all the time; its claims are not answered')
