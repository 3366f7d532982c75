"""`kubectl kcp claims`: the permission claims of bound exports, and the answers to them.

Called by `kcp`; `bind` uses the same functions. A claim is identified by group, resource and identity and written as
`resource.group` (the core group as `secrets` or `secrets.core`). Invariant: an answer keeps the verbs and selector of
the export's claim or of the previous answer; other answers are unchanged.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, columns, common_flags, load_context, print_error, run, say, warn
from atoll.cli.kubectl.wait import WaitTimeout, until
from atoll.cli.kubectl.workspaces import BINDINGS, claim_key, claim_name
from atoll.machinery.client.client import Client
from atoll.machinery.meta.objects import Object, conditions_of, spec_of, status_of
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.process.retry import ATTEMPTS

ACCEPTED, REJECTED = "Accepted", "Rejected"
STATES = {"accept": ACCEPTED, "reject": REJECTED}
#: How long to wait until answers are applied.
TIMEOUT_S = 30.0

USAGE = """usage: kubectl kcp claims COMMAND [-w PATH] [--kubeconfig FILE] [--context NAME]

  get apibinding [NAME]       what bound exports claim of this workspace, and what was answered
  accept NAME [options]       accept claims of the APIBinding NAME, all of them unless options say which
  reject NAME [options]       reject them

  --resource RESOURCE.GROUP   only this one; may be given several times (secrets, or secrets.core, for the core group)
  --identity-hash HASH        only those on resources of the export with this identity
"""


def dispatch(arguments: Sequence[str]) -> int:
    """Run a command. Return its exit code."""
    common, rest = common_flags().parse_known_args(list(arguments))
    if not rest or rest[0] in {"-h", "--help", "help"}:
        say(USAGE.rstrip())
        return 0 if rest else 2
    command, *words = rest
    if command == "get":
        return run(_get(_of_bindings().parse_args(words, common)))
    if command in STATES:
        return run(_answer(_of_answer(command).parse_args(words, common), STATES[command]))
    return print_error(f"unknown command {command!r}; see kubectl kcp claims --help", 2)


def _of_bindings() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl kcp claims get", allow_abbrev=False)
    parser.add_argument("kind", choices=("apibinding", "apibindings"))
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="one of them; all if left out")
    return parser


def _of_answer(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"kubectl kcp claims {command}", allow_abbrev=False)
    parser.add_argument("name", metavar="NAME", help="the APIBinding")
    parser.add_argument("--resource", action="append", default=[], metavar="RESOURCE.GROUP", help="only this one")
    parser.add_argument("--identity-hash", default="", metavar="HASH", help="only those of this identity")
    return parser


# --- get


async def _get(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        if options.name:
            bindings = [await _binding(client, options.name)]
        else:
            bindings = list((await client.list(BINDINGS))["items"])
    rows = [row for binding in bindings for row in _rows(binding)]
    if not rows:
        say("No claims found." if bindings else "No APIBindings found.")
        return
    titles = ("NAME", "CLAIM", "VERBS", "SELECTOR", "STATE", "IDENTITY")
    width = len(titles) if any(row[-1] for row in rows) else len(titles) - 1
    for line in columns([row[:width] for row in (titles, *rows)]):
        say(line)


def _rows(binding: Object) -> Iterator[tuple[str, ...]]:
    spec, status = spec_of(binding), status_of(binding)
    made = {claim_key(claim): claim for claim in status.get("exportPermissionClaims") or ()}
    answers = {claim_key(claim): claim for claim in spec.get("permissionClaims") or ()}
    applied = {claim_key(claim) for claim in status.get("appliedPermissionClaims") or ()}
    for key in sorted({**made, **answers}):
        claim = {**made.get(key, {}), **answers.get(key, {})}
        state = str(answers.get(key, {}).get("state") or "Open")
        if key not in made:
            state += " (not claimed)"
        elif state == ACCEPTED and key not in applied:
            state += " (not applied)"
        verbs = ",".join(claim.get("verbs") or ())
        yield binding["metadata"]["name"], claim_name(claim), verbs, _selector(claim), state, key[2]


def _selector(claim: Object) -> str:
    selector = claim.get("selector") or claim.get("defaultSelector") or {}
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or ():
        values = f" ({','.join(each['values'])})" if each.get("values") else ""
        parts.append(f"{each.get('key')} {each.get('operator')}{values}")
    return "; ".join(parts) or "all"


# --- accept and reject


async def _answer(options: argparse.Namespace, state: str) -> None:
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        for _ in range(ATTEMPTS):
            binding = await _binding(client, options.name)
            claims = _selected_claims(binding, options)
            answer_claims(binding, {claim_key(claim): state for claim in claims}, claims)
            try:
                binding = await client.update(BINDINGS, binding)
                break
            except Conflict:
                continue
        else:
            raise Failure(f'APIBinding "{options.name}" changes all the time; nothing was answered')
        for claim in claims:
            say(f"{claim_name(claim)} {state.lower()}")
        await _in_force(client, binding)


async def _in_force(client: Client, binding: Object) -> None:
    """Wait until the answers are applied; warn if they are not."""
    try:
        binding = await until(client, BINDINGS, binding, lambda each: _applied(each) or bool(_invalid(each)), TIMEOUT_S)
    except WaitTimeout as late:
        binding = late.latest
    if not _applied(binding):
        why = _invalid(binding) or "objects are still being labelled; see kubectl kcp claims get apibinding"
        warn(f'the answers of APIBinding "{binding["metadata"]["name"]}" are not in force: {why}')


def _applied(binding: Object) -> bool:
    """Return whether every accepted claim of the export is applied, and no rejected one."""
    status = status_of(binding)
    made = {claim_key(claim) for claim in status.get("exportPermissionClaims") or ()}
    applied = {claim_key(claim) for claim in status.get("appliedPermissionClaims") or ()}
    answers = [claim for claim in binding["spec"].get("permissionClaims") or () if claim_key(claim) in made]
    return all((claim_key(claim) in applied) == (claim["state"] == ACCEPTED) for claim in answers)


def _invalid(binding: Object) -> str:
    """Return why the server rejects the answers; "" if it does not, or has not validated them yet."""
    for each in conditions_of(binding):
        if each["type"] == "PermissionClaimsValid" and each["status"] == "False":
            return str(each.get("message") or each.get("reason"))
    return ""


async def _binding(client: Client, name: str) -> Object:
    try:
        return await client.get(BINDINGS, name)
    except NotFound:
        names = [item["metadata"]["name"] for item in (await client.list(BINDINGS))["items"]]
        existing = f"; there are {', '.join(sorted(names))}" if names else ""
        raise Failure(f'no APIBinding "{name}" in workspace {client.target.workspace}{existing}') from None


def _selected_claims(binding: Object, options: argparse.Namespace) -> list[Object]:
    """Return the claims of the export that the flags select. Raises Failure if there are none."""
    made = list(status_of(binding).get("exportPermissionClaims") or ())
    if not made:
        raise Failure(f'the export of APIBinding "{options.name}" claims nothing')
    wanted = {parse_group_resource(text) for text in options.resource}
    found = [
        claim
        for claim in made
        if (not wanted or claim_key(claim)[:2] in wanted)
        and (not options.identity_hash or claim_key(claim)[2] == options.identity_hash)
    ]
    missing = sorted(wanted - {claim_key(claim)[:2] for claim in found})
    if missing or not found:
        raise unclaimed_failure(missing, made)
    return found


def parse_group_resource(text: str) -> tuple[str, str]:
    """Return (group, resource) of `resource.group`. Raises Failure."""
    resource, _, group = text.strip().partition(".")
    if not resource:
        raise Failure(f'"{text}" names no resource; write it as in secrets, or widgets.example.io')
    return "" if group == "core" else group, resource


def resource_name(group_resource: tuple[str, str]) -> str:
    """Return `resource.group`, or the resource alone for the core group."""
    group, resource = group_resource
    return f"{resource}.{group}" if group else resource


def unclaimed_failure(missing: Sequence[tuple[str, str]], made: Iterable[Object]) -> Failure:
    """Return the Failure for claims that the export does not make, with the claims it makes."""
    claimed = ", ".join(sorted(map(claim_name, made))) or "nothing"
    what = f"no claim on {', '.join(map(resource_name, missing))}" if missing else "no such claim"
    return Failure(f"the export makes {what}; it claims {claimed}")


def answer_claims(binding: Object, states: dict[tuple[str, str, str], str], made: Iterable[Object]) -> None:
    """Set answers in a binding's spec, in place: claims of the export by key, with `state`."""
    spec = binding["spec"]
    answers = {claim_key(claim): claim for claim in spec.get("permissionClaims") or ()}
    for claim in made:
        key = claim_key(claim)
        # The selector of an earlier answer is immutable.
        selector = answers.get(key, {}).get("selector") or claim.get("defaultSelector") or {"matchAll": True}
        answers[key] = {**claim, "selector": selector, "state": states[key]}
    spec["permissionClaims"] = list(answers.values())
