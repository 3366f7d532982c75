"""`kubectl kcp bind` and `kubectl kcp claims` against a canned server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.cli.kubectl import claims, kcp, wait
from atoll.cli.kubectl.bind import reference
from atoll.cli.kubectl.plugin import Failure
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, Conflict, Forbidden
from harness.clients.terminal import PluginTerminal, Ran
from harness.servers.stand_ins.canned_api import CannedApi, event, serving, watching

APIS = "/apis/apis.kcp.io/v1alpha2"
HERE, THERE = "/clusters/root:shop", "/clusters/root:provider"
SECRETS: Object = {"resource": "secrets", "verbs": ["get"]}
SAILS: Object = {
    "group": "sea.io",
    "resource": "sails",
    "identityHash": "abc",
    "verbs": ["*"],
    "defaultSelector": {"matchLabels": {"a": "b"}},
}
CLAIMS = [SECRETS, SAILS]
ALL: Object = {"matchAll": True}


class Terminal(PluginTerminal):
    """Runs the plug-in as its console script does, in workspace root:shop of a canned server."""

    async def kcp(self, *arguments: str) -> Ran:
        return await self.run(kcp.dispatch, *arguments)

    def exports(self, *claims: Object) -> None:
        self.api.on(f"GET {THERE}{APIS}/apiexports/boats", {"spec": {"permissionClaims": list(claims)}})

    def bound(self, phase: str = "Bound", **status: Any) -> None:
        self.api.on(f"POST {HERE}{APIS}/apibindings", binding(phase, **status))

    def sent(self, method: str = "POST") -> Object:
        """The one body that was sent by a method."""
        (found,) = (decode(each.body) for each in self.api.requests if each.method == method)
        return dict(found)


@pytest.fixture
async def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Terminal]:
    async with serving(CannedApi()) as api:
        yield Terminal(api, api.kubeconfig(tmp_path, HERE), capsys)


def binding(phase: str = "Bound", answers: list[Object] | None = None, **status: object) -> Object:
    return {
        "metadata": {"name": "boats", "resourceVersion": "5"},
        "spec": {
            "reference": {"export": {"path": "root:provider", "name": "boats"}},
            **({"permissionClaims": answers} if answers else {}),
        },
        "status": {"phase": phase, "conditions": [{"type": "PermissionClaimsValid", "status": "True"}], **status},
    }


CREATED = 'APIBinding "boats" created. Waiting for it to be bound...\n'
BOUND = 'APIBinding "boats" is bound.\n'


# --- bind


async def test_binding_posts_one_object_and_waits_by_a_watch_on_it(terminal: Terminal) -> None:
    terminal.bound("Binding")
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", watching(event("MODIFIED", binding())))
    assert await terminal.kcp("bind", "apiexport", "root:provider:boats") == (0, CREATED + BOUND, "")
    assert terminal.sent() == {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {"name": "boats"},
        "spec": {"reference": {"export": {"path": "root:provider", "name": "boats"}}},
    }
    query = terminal.api.requests[1].query
    assert (query["fieldSelector"], query["resourceVersion"]) == ("metadata.name=boats", "5")
    assert len(terminal.api.requests) == 2


async def test_another_name_and_another_workspace(terminal: Terminal) -> None:
    terminal.api.on(f"POST /clusters/root:shop:deep{APIS}/apibindings", binding())
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats", "--name", "mine", "-w", "deep")
    assert ran.code == 0
    assert terminal.sent()["metadata"] == {"name": "mine"}


async def test_who_may_not_watch_bindings_is_served_by_asking_again(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "ASK_AGAIN_S", 0.001)
    terminal.bound("Binding")
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", Forbidden("no watch"))
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", binding("Binding"), binding())
    assert (await terminal.kcp("bind", "apiexport", "root:provider:boats")).out == CREATED + BOUND


async def test_claims_are_answered_in_the_object_that_is_created(terminal: Terminal) -> None:
    terminal.exports(*CLAIMS)
    terminal.bound()
    ran = await terminal.kcp(
        "bind",
        "apiexport",
        "root:provider:boats",
        "--accept-permission-claim",
        "secrets.core",
        "--reject-permission-claim=sails.sea.io",
    )
    assert ran.code == 0
    assert terminal.sent()["spec"]["permissionClaims"] == [
        {**SECRETS, "selector": ALL, "state": "Accepted"},
        {**SAILS, "selector": {"matchLabels": {"a": "b"}}, "state": "Rejected"},
    ]


@pytest.mark.parametrize(
    ("flags", "states"),
    [
        (["--accept-all-permission-claims"], ["Accepted", "Accepted"]),
        (["--reject-all-permission-claims"], ["Rejected", "Rejected"]),
        (["--accept-all-permission-claims", "--reject-permission-claim", "secrets"], ["Rejected", "Accepted"]),
        (["--accept-permission-claim", "secrets,sails.sea.io"], ["Accepted", "Accepted"]),
    ],
)
async def test_all_claims_may_be_answered_at_once(terminal: Terminal, flags: list[str], states: list[str]) -> None:
    terminal.exports(*CLAIMS)
    terminal.bound()
    assert (await terminal.kcp("bind", "apiexport", "root:provider:boats", *flags)).code == 0
    assert [each["state"] for each in terminal.sent()["spec"]["permissionClaims"]] == states


async def test_a_claim_that_is_not_made_binds_nothing(terminal: Terminal) -> None:
    terminal.exports(SECRETS)
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats", "--accept-permission-claim", "configmaps")
    assert ran == (1, "", "Error: the export makes no claim on configmaps; it claims secrets\n")
    assert [each.method for each in terminal.api.requests] == ["GET"]


async def test_who_may_bind_but_not_read_the_export_answers_what_the_binding_tells(terminal: Terminal) -> None:
    terminal.api.on(f"GET {THERE}{APIS}/apiexports/boats", Forbidden("not yours"))
    terminal.bound(exportPermissionClaims=CLAIMS)
    terminal.api.on(f"PUT {HERE}{APIS}/apibindings/boats", Conflict("changed"), binding(answers=[SECRETS, SAILS]))
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", binding(exportPermissionClaims=CLAIMS))
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats", "--accept-all-permission-claims")
    assert ran == (0, CREATED + BOUND, "")
    methods = [each.method for each in terminal.api.requests]
    assert methods == ["GET", "POST", "PUT", "GET", "PUT"]
    last = decode(terminal.api.requests[-1].body)
    assert [each["state"] for each in last["spec"]["permissionClaims"]] == ["Accepted", "Accepted"]
    assert last["metadata"]["resourceVersion"] == "5"


async def test_claims_nobody_answered_are_warned_of(terminal: Terminal) -> None:
    terminal.bound(exportPermissionClaims=CLAIMS)
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats")
    assert ran.code == 0
    assert ran.err == "".join(
        f'Warning: APIBinding "boats" neither accepts nor rejects the claim on {name}\n'
        for name in ("secrets", "sails.sea.io")
    )


async def test_claims_that_become_known_after_the_binding_is_bound_are_waited_for(terminal: Terminal) -> None:
    terminal.bound(conditions=[])
    known = watching(event("MODIFIED", binding(exportPermissionClaims=[SECRETS])))
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", known)
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats")
    assert (ran.code, ran.err.count("neither accepts nor rejects the claim on secrets")) == (0, 1)


async def test_a_server_that_never_tells_of_claims_has_bound_it_all_the_same(terminal: Terminal) -> None:
    terminal.bound(conditions=[])
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", watching())
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats", "--timeout", "100ms")
    assert ran == (0, CREATED + BOUND, "")


async def test_contradictions_are_not_sent(terminal: Terminal) -> None:
    words = ("bind", "apiexport", "root:provider:boats")
    both = await terminal.kcp(
        *words, "--accept-permission-claim", "secrets", "--reject-permission-claim", "secrets.core"
    )
    assert both.err == "Error: the claim on secrets cannot be both accepted and rejected\n"
    every = await terminal.kcp(*words, "--accept-all-permission-claims", "--reject-all-permission-claims")
    assert every.code == 1
    assert terminal.api.requests == []


async def test_a_refusal_says_what_it_may_mean(terminal: Terminal) -> None:
    refusal = "unable to create APIBinding: no permission to bind to export root:provider:boats"
    terminal.api.on(f"POST {HERE}{APIS}/apibindings", Forbidden(refusal))
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats")
    assert (ran.code, ran.err.splitlines()) == (
        1,
        [
            f"Error: {refusal}",
            "Either root:provider has no APIExport boats, or its owner has not allowed you the verb bind on it.",
        ],
    )
    terminal.api.on(f"POST {HERE}{APIS}/apibindings", AlreadyExists("there"))
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats")
    assert ran.err.startswith('Error: APIBinding "boats" exists already in workspace root:shop; choose another')


async def test_a_binding_that_does_not_become_bound_says_why(terminal: Terminal) -> None:
    conditions = [
        {"type": "Ready", "status": "False"},
        {"type": "APIExportValid", "status": "True"},
        {"type": "InitialBindingCompleted", "status": "False", "message": "a conflict"},
        {"type": "BindingUpToDate", "status": "False", "message": "a conflict"},
    ]
    terminal.bound("Binding", conditions=conditions)
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", watching())
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats", "--timeout", "200ms")
    assert ran.code == 1
    assert ran.err == (
        'Error: APIBinding "boats" is not bound after 0.2 s: a conflict\n'
        "It will be once that is resolved; kubectl delete apibinding boats takes it back.\n"
    )


async def test_a_binding_deleted_meanwhile_is_not_waited_for(terminal: Terminal) -> None:
    terminal.bound("Binding")
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", watching(event("DELETED", binding())))
    ran = await terminal.kcp("bind", "apiexport", "root:provider:boats")
    assert ran.err == 'Error: apibinding "boats" was deleted while it was waited for\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("root:a:x", ("root:a", "x")),
        ("root/a/x", ("root:a", "x")),
        ("1x9p0q7w5e3r2t8y:x", ("1x9p0q7w5e3r2t8y", "x")),
        (".:x", ("root:shop", "x")),
        ("..:a:x", ("root:a", "x")),
        (":root:a:x", ("root:a", "x")),
        (":x", ("root", "x")),
        ("root:a.example.com", ("root", "a.example.com")),
    ],
)
def test_an_export_is_named_by_its_workspace_and_name(text: str, found: tuple[str, str]) -> None:
    assert reference("root:shop", text) == found


@pytest.mark.parametrize("text", ["x", "root:a:", "..:..:..:x"])
def test_an_export_without_its_workspace_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        reference("root:shop", text)


# --- claims


async def test_claims_are_shown_with_what_was_answered(terminal: Terminal) -> None:
    answers = [
        {
            **SECRETS,
            "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]},
            "state": "Accepted",
        },
        {**SAILS, "resource": "masts", "selector": ALL, "state": "Rejected"},
    ]
    shown = binding(answers=answers, exportPermissionClaims=CLAIMS, appliedPermissionClaims=[SECRETS])
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", shown)
    listed: Object = {"metadata": {}, "items": [shown]}
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", listed)
    one = await terminal.kcp("claims", "get", "apibinding", "boats")
    assert one == (
        0,
        (
            "NAME    CLAIM          VERBS   SELECTOR     STATE                    IDENTITY\n"
            "boats   secrets        get     a In (x,y)   Accepted\n"
            "boats   masts.sea.io   *       all          Rejected (not claimed)   abc\n"
            "boats   sails.sea.io   *       a=b          Open                     abc\n"
        ),
        "",
    )
    assert await terminal.kcp("claims", "get", "apibindings") == one


async def test_a_claim_that_is_accepted_and_not_applied_is_told_apart(terminal: Terminal) -> None:
    answers = [{**SECRETS, "selector": ALL, "state": "Accepted"}]
    shown = binding(answers=answers, exportPermissionClaims=[SECRETS])
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", shown)
    out = (await terminal.kcp("claims", "get", "apibinding", "boats")).out.splitlines()
    assert out == [
        "NAME    CLAIM     VERBS   SELECTOR   STATE",
        "boats   secrets   get     all        Accepted (not applied)",
    ]


async def test_nothing_to_show(terminal: Terminal) -> None:
    empty: Object = {"metadata": {}, "items": []}
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", empty)
    assert (await terminal.kcp("claims", "get", "apibinding")).out == "No APIBindings found.\n"
    missing = await terminal.kcp("claims", "get", "apibinding", "boats")
    assert missing.err == 'Error: no APIBinding "boats" in workspace root:shop\n'
    some: Object = {"metadata": {}, "items": [binding()]}
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", some)
    assert (await terminal.kcp("claims", "get", "apibinding")).out == "No claims found.\n"
    missing = await terminal.kcp("claims", "get", "apibinding", "cars")
    assert missing.err == 'Error: no APIBinding "cars" in workspace root:shop; there are boats\n'


@pytest.mark.parametrize(
    ("flags", "states"),
    [
        ([], {"secrets": "Accepted", "sails": "Accepted"}),
        (["--resource", "secrets"], {"secrets": "Accepted"}),
        (["--resource=sails.sea.io"], {"sails": "Accepted"}),
        (["--identity-hash", "abc"], {"sails": "Accepted"}),
    ],
)
async def test_accepting_writes_the_whole_binding_with_the_answers(
    terminal: Terminal, flags: list[str], states: dict[str, str]
) -> None:
    read = binding(exportPermissionClaims=CLAIMS)
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", read)
    applied = [claim for claim in CLAIMS if claim["resource"] in states]
    answers = [{**claim, "state": "Accepted"} for claim in applied]
    told = binding(answers=answers, exportPermissionClaims=CLAIMS, appliedPermissionClaims=applied)
    terminal.api.on(f"PUT {HERE}{APIS}/apibindings/boats", told)
    ran = await terminal.kcp("claims", "accept", "boats", *flags)
    assert ran.code == 0
    assert sorted(ran.out.split()) == sorted(
        [*("sails.sea.io" if each == "sails" else each for each in states), *["accepted"] * len(states)]
    )
    sent = terminal.sent("PUT")
    assert {each["resource"]: each["state"] for each in sent["spec"]["permissionClaims"]} == states
    assert {**sent, "spec": {"reference": sent["spec"]["reference"]}} == read


async def test_rejecting_keeps_the_selector_that_was_chosen_and_the_other_answers(terminal: Terminal) -> None:
    chosen = {"matchLabels": {"mine": "yes"}}
    answers = [
        {**SECRETS, "selector": chosen, "state": "Accepted"},
        {"group": "old.io", "resource": "olds", "selector": ALL, "state": "Rejected", "verbs": ["*"]},
    ]
    read = binding(answers=answers, exportPermissionClaims=CLAIMS)
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", read)
    told = binding(answers=[{**SECRETS, "state": "Rejected"}], exportPermissionClaims=CLAIMS)
    terminal.api.on(f"PUT {HERE}{APIS}/apibindings/boats", Conflict("changed"), told)
    ran = await terminal.kcp("claims", "reject", "boats", "--resource", "secrets")
    assert ran == (0, "secrets rejected\n", "")
    assert [each.method for each in terminal.api.requests] == ["GET", "PUT", "GET", "PUT"]
    sent = decode(terminal.api.requests[-1].body)["spec"]["permissionClaims"]
    assert sent == [{**SECRETS, "selector": chosen, "state": "Rejected"}, answers[1]]


async def test_answers_are_waited_for_until_they_are_in_force(terminal: Terminal) -> None:
    answers = [{**SECRETS, "state": "Accepted"}]
    before = binding(answers=answers, exportPermissionClaims=[SECRETS])
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", before)
    terminal.api.on(f"PUT {HERE}{APIS}/apibindings/boats", before)
    after = binding(answers=answers, exportPermissionClaims=[SECRETS], appliedPermissionClaims=[SECRETS])
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", watching(event("MODIFIED", after)))
    assert await terminal.kcp("claims", "accept", "boats") == (0, "secrets accepted\n", "")
    assert len(terminal.api.requests) == 3


async def test_answers_that_do_not_come_into_force_are_warned_of(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{**SECRETS, "state": "Accepted"}]
    invalid = [{"type": "PermissionClaimsValid", "status": "False", "message": "no such identity"}]
    read = binding(answers=answers, exportPermissionClaims=[SECRETS], conditions=invalid)
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", read)
    terminal.api.on(f"PUT {HERE}{APIS}/apibindings/boats", read)
    ran = await terminal.kcp("claims", "accept", "boats")
    assert ran.code == 0
    assert ran.err == 'Warning: the answers of APIBinding "boats" are not in force: no such identity\n'
    monkeypatch.setattr(claims, "TIMEOUT_S", 0.1)
    slow = binding(answers=answers, exportPermissionClaims=[SECRETS])
    terminal.api.on(f"PUT {HERE}{APIS}/apibindings/boats", slow)
    terminal.api.on(f"GET {HERE}{APIS}/apibindings", watching())
    assert "are not in force: objects are still" in (await terminal.kcp("claims", "accept", "boats")).err


async def test_answers_to_what_is_not_claimed_are_refused(terminal: Terminal) -> None:
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", binding(exportPermissionClaims=CLAIMS))
    ran = await terminal.kcp("claims", "accept", "boats", "--resource", "secrets", "--resource", "pods.core")
    assert ran == (1, "", "Error: the export makes no claim on pods; it claims sails.sea.io, secrets\n")
    ran = await terminal.kcp("claims", "accept", "boats", "--identity-hash", "abd")
    assert ran.err == "Error: the export makes no such claim; it claims sails.sea.io, secrets\n"
    terminal.api.on(f"GET {HERE}{APIS}/apibindings/boats", binding())
    ran = await terminal.kcp("claims", "accept", "boats")
    assert ran.err == 'Error: the export of APIBinding "boats" claims nothing\n'
    assert not [each for each in terminal.api.requests if each.method != "GET"]


# --- all of them


async def test_ws_is_the_other_plug_in(terminal: Terminal) -> None:
    for name in ("ws", "workspace", "workspaces"):
        assert (await terminal.kcp(name, "current", "--short")).out == "root:shop\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["unheard"],
        ["claims", "unheard"],
        ["claims", "get"],
        ["claims", "get", "pods"],
        ["claims", "accept"],
        ["bind"],
        ["bind", "apiexport"],
        ["bind", "api", "root:x"],
        ["bind", "apiexport", "root:x", "--timeout", "soon"],
    ],
)
def test_what_is_not_understood_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = kcp.dispatch(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert capsys.readouterr().err


def test_help_is_for_everybody(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, begin in (([], 2), (["--help"], 0), (["claims"], 2), (["claims", "--help"], 0)):
        assert kcp.dispatch(arguments) == begin
        assert capsys.readouterr().out.startswith("usage: kubectl kcp")
