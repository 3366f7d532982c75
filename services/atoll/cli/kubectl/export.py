"""`kubectl atoll export`: the consumers of this workspace's exports, and the lag of their streams.

Called by `atoll`. Consumers are read as a provider's controller reads them: the APIBindings in the virtual workspace of
the export, at every URL of its endpoint slice. Invariant: a failed read is reported with advice, never shown as empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec

from atoll.cli.kubectl import workspaces
from atoll.cli.kubectl.plugin import Failure, columns, common_flags, load_context, run, say, warn
from atoll.cli.kubectl.workspaces import BINDINGS, EXPORTS, claim_key, claim_name
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.objects import Object, annotations_of, conditions_of, labels_of, spec_of, status_of
from atoll.machinery.meta.status import ApiError, Forbidden, NotFound
from atoll.machinery.wire.pending_response import ClientError

SLICES = Resource("apis.kcp.io", "v1alpha1", "apiexportendpointslices", namespaced=False)
NO_SLICE = "no APIExportEndpointSlice of this workspace names it, which would say where its consumers are; create one"
EVENTS, SECONDS = "atoll_stream_lag_events", "atoll_stream_lag_seconds"


class Endpoint(msgspec.Struct, frozen=True):
    """One shard's virtual workspace of an export: its bindings, or the reason that they could not be read."""

    url: str
    bindings: list[Object] = []
    refusal: str = ""
    lag: str = ""


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll export",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Show the APIExports of the current workspace, or the consumers of one.",
    )
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="an APIExport; all of them if left out")
    return run(_show(parser.parse_args(list(arguments))))


async def _show(options: argparse.Namespace) -> None:
    kubeconfig, context = load_context(options)
    async with Client(workspaces.target(kubeconfig, context, options.workspace)) as client:
        exports = await _exports(client)
        if options.name:
            lines = await _one(client, _found(client, exports, options.name))
        else:
            lines = await _all(client, exports)
    for line in lines:
        say(line)


async def _exports(client: Client) -> list[Object]:
    try:
        listed = await client.list(EXPORTS)
    except Forbidden as error:
        raise Failure(
            f"{error}\nConsumers are for their provider to see: it takes list on apiexports and apiexportendpointslices"
            f" in {client.target.workspace}, and get and list on apiexports/content of an export."
        ) from error
    return sorted(listed["items"], key=_name)


def _found(client: Client, exports: list[Object], name: str) -> Object:
    for each in exports:
        if each["metadata"]["name"] == name:
            return each
    there = ", ".join(each["metadata"]["name"] for each in exports) or "none at all"
    raise Failure(f'no APIExport "{name}" in workspace {client.target.workspace}; there are: {there}')


# --- all exports


async def _all(client: Client, exports: list[Object]) -> list[str]:
    if not exports:
        return [f"Workspace {client.target.workspace} exports nothing."]
    rows: list[tuple[str, ...]] = [("NAME", "RESOURCES", "CLAIMS", "CONSUMERS", "BOUND")]
    slices = await _slices(client)
    for export in exports:
        endpoints = await _endpoints(client, export, slices)
        bindings = [binding for each in endpoints for binding in each.bindings]
        for each in endpoints:
            if each.refusal:
                warn(f"{_name(export)}: {each.refusal}")
        unknown = any(each.refusal for each in endpoints)
        bound = sum(_phase(binding) == "Bound" for binding in bindings)
        counts = ("?", "?") if unknown else (str(len(bindings)), str(bound))
        spec = spec_of(export)
        sizes = (str(len(spec.get(key) or ())) for key in ("resources", "permissionClaims"))
        rows.append((_name(export), *sizes, *counts))
    return list(columns(rows))


# --- one export


async def _one(client: Client, export: Object) -> list[str]:
    endpoints = await _endpoints(client, export, await _slices(client), lag=True)
    rows = sorted(_consumer(binding, export) for each in endpoints for binding in each.bindings)
    lines = [*_facts(client, export, endpoints), ""]
    if rows:
        titles = ("CONSUMER", "BINDING", "PHASE", "CLAIMS")
        return [*lines, *columns([titles, *rows])]
    if any(each.refusal for each in endpoints):
        return [*lines, "Its consumers are not known: see above."]
    name, path = _name(export), _path(client, export)
    return [
        *lines,
        f"Nobody has bound it. A consumer does, in a workspace of its own: kubectl kcp bind apiexport {path}:{name}",
    ]


def _facts(client: Client, export: Object, endpoints: list[Endpoint]) -> Iterator[str]:
    spec, status = spec_of(export), status_of(export)
    yield f"APIExport {_name(export)} of {_path(client, export)}"
    yield f"  identity   {status.get('identityHash') or 'none yet'}"
    for each in spec.get("resources") or ():
        name = claim_name({"resource": each["name"], "group": each.get("group")})
        yield f"  resource   {name} ({each.get('schema')})"
    for claim in spec.get("permissionClaims") or ():
        yield f"  claim      {claim_name(claim)} ({', '.join(claim.get('verbs') or ())})"
    for each in conditions_of(export):
        if each["status"] != "True":
            yield f"  condition  {each['type']} is {each['status']}: {each.get('message') or each.get('reason')}"
    for endpoint in endpoints:
        yield f"  endpoint   {endpoint.url}"
        yield f"  stream     {endpoint.lag}"
        if endpoint.refusal:
            yield f"  refused    {endpoint.refusal}"


def _name(export: Object) -> str:
    return str(export["metadata"]["name"])


def _path(client: Client, export: Object) -> str:
    return str(annotations_of(export).get(wellknown.PATH) or client.target.workspace)


def _consumer(binding: Object, export: Object) -> tuple[str, str, str, str]:
    annotations = annotations_of(binding)
    place = annotations.get(wellknown.PATH) or annotations.get(wellknown.CLUSTER) or ""
    return place, binding["metadata"]["name"], _phase(binding) or "new", _answers(binding, export)


def _answers(binding: Object, export: Object) -> str:
    """Return the consumer's answer to each claim of the export, with `not applied` where it has no effect yet."""
    answers = {claim_key(each): each for each in spec_of(binding).get("permissionClaims") or ()}
    applied = {claim_key(each) for each in status_of(binding).get("appliedPermissionClaims") or ()}
    answers_by_claim = []
    for claim in spec_of(export).get("permissionClaims") or ():
        state = str(answers.get(claim_key(claim), {}).get("state") or "open").lower()
        late = " (not applied)" if state == "accepted" and claim_key(claim) not in applied else ""
        answers_by_claim.append(f"{claim_name(claim)} {state}{late}")
    return ", ".join(answers_by_claim) or "-"


def _phase(binding: Object) -> str:
    return str(status_of(binding).get("phase") or "")


# --- endpoints


async def _slices(client: Client) -> list[Object]:
    return list((await client.list(SLICES))["items"])


async def _endpoints(client: Client, export: Object, slices: list[Object], *, lag: bool = False) -> list[Endpoint]:
    """Return the endpoints of all shards with consumers, from the endpoint slices of this export."""
    own = [each for each in slices if _is_of(each, export)]
    if not own:
        return [Endpoint("none", lag="-", refusal=NO_SLICE)]
    urls = {end["url"]: None for each in own for end in status_of(each).get("endpoints") or ()}
    return [await _endpoint(client, export, url, lag=lag) for url in urls]


def _is_of(slice: Object, export: Object) -> bool:
    here = annotations_of(export)
    of = spec_of(slice).get("export") or {}
    places = {None, "", here.get(wellknown.PATH), here.get(wellknown.CLUSTER)}
    return bool(of.get("name") == _name(export)) and of.get("path") in places


async def _endpoint(client: Client, export: Object, url: str, *, lag: bool) -> Endpoint:
    view = client.view(url)
    try:
        lag_text = await _lag(client, url) if lag else ""
        try:
            seen = (await view.list(BINDINGS, limit="500"))["items"]
            return Endpoint(url, [binding for binding in seen if _binds(binding, export)], lag=lag_text)
        except Forbidden as error:
            needs = f"you need the verbs get and list on apiexports/content of {_name(export)} in this workspace"
            return Endpoint(url, lag=lag_text, refusal=f"{error}; {needs}")
        except (ApiError, ClientError, TimeoutError) as error:
            return Endpoint(url, refusal=f"{url} does not answer: {error}", lag=lag_text)
    finally:
        await view.close()


def _binds(binding: Object, export: Object) -> bool:
    """Return whether a binding binds this export: with an accepted claim on APIBindings, bindings of other exports
    appear too.
    """
    cluster = str(annotations_of(export).get(wellknown.CLUSTER) or "")
    wanted = hashes.export_hash(cluster, _name(export))
    return labels_of(binding).get(hashes.EXPORT_LABEL) == wanted


async def _lag(client: Client, url: str) -> str:
    """Return how far the shard of an endpoint is behind in publishing its events."""
    parts = urlsplit(url)
    shard = client.view(f"{parts.scheme}://{parts.netloc}", "")
    try:
        found = _metrics(await shard.raw("GET", "/metrics"))
    except (Forbidden, NotFound):
        return "lag unknown: /metrics is for those who operate the shard"
    except (ApiError, ClientError, TimeoutError) as error:
        return f"lag unknown: {error}"
    finally:
        await shard.close()
    if EVENTS not in found:
        return "the shard publishes no stream"
    return f"{found[EVENTS]:.0f} events behind, the oldest {found.get(SECONDS, 0.0):.1f} s old"


def _metrics(text: bytes) -> dict[str, float]:
    """Return the values of the two lag series."""
    lines = (line.partition(" ") for line in text.decode(errors="replace").splitlines())
    return {name: float(value) for name, _, value in lines if name in {EVENTS, SECONDS}}
