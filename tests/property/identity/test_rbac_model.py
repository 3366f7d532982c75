"""RBAC against a naive model that reads all objects for every decision.

The model knows Kubernetes' rules from their description and shares no code with the authorizer: no index, no cache, no
compilation. Policies change between requests, so cached decisions must match the stored policies.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import User
from harness.models.rbac_snapshot import FakeStore, binding, logical_cluster, role, subject
from harness.seeds import drawn

WEB, ADMIN = "2web", "system:admin"
NAMESPACES = ("n1", "n2")
USERS = (
    User("alice", ("devs", "system:authenticated")),
    User("bob", ("system:authenticated",)),
    User("system:serviceaccount:n1:sa", ("system:serviceaccounts",)),
)
SUBJECTS = (
    "User:alice",
    "User:bob",
    "Group:devs",
    "Group:system:authenticated",
    "Group:system:serviceaccounts",
    "ServiceAccount:n1/sa",
    "ServiceAccount:sa",
    "User:system:serviceaccount:n1:sa",
    "User:devs",
    "Group:alice",
)
ROLE_NAMES = ("r1", "r2", "r3")
#: Access to the workspace, without which nothing else of RBAC is decisive.
ACCESS = (
    role("door", {"verbs": ["access"], "nonResourceURLs": ["/"]}),
    binding("door", "door", "User:alice", "User:bob"),
)


def some(*values: str, max_size: int = 2) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=max_size)


resource_rules = st.builds(
    lambda verbs, groups, resources, names: {
        "verbs": verbs,
        "apiGroups": groups,
        "resources": resources,
        **({"resourceNames": names} if names else {}),
    },
    some("get", "list", "create", "access", "*"),
    some("", "apps", "core.kcp.io", "*"),
    some("pods", "pods/log", "secrets", "logicalclusters", "*", "*/log", "*/scale"),
    st.one_of(st.just([]), some("a", "b", "cluster")),
)
url_rules = st.builds(
    lambda verbs, urls: {"verbs": verbs, "nonResourceURLs": urls},
    some("get", "access", "*"),
    some("/", "/api", "/api/*", "*", "/apis*"),
)
rules = st.lists(st.one_of(resource_rules, url_rules), max_size=3)

objects = st.one_of(
    st.builds(lambda name, rs: role(name, *rs), st.sampled_from(ROLE_NAMES), rules),
    st.builds(
        lambda name, rs, ns: role(name, *(r for r in rs if "resources" in r), namespace=ns),
        st.sampled_from(ROLE_NAMES),
        rules,
        st.sampled_from(NAMESPACES),
    ),
    st.builds(
        lambda name, to, subjects: binding(name, to, *subjects),
        st.sampled_from(("b1", "b2")),
        st.sampled_from(ROLE_NAMES),
        st.lists(st.sampled_from(SUBJECTS), max_size=3),
    ),
    st.builds(
        lambda name, to, subjects, ns, kind: binding(name, to, *subjects, namespace=ns, role_kind=kind),
        st.sampled_from(("b1", "b2")),
        st.sampled_from(ROLE_NAMES),
        st.lists(st.sampled_from(SUBJECTS), max_size=3),
        st.sampled_from(NAMESPACES),
        st.sampled_from(("Role", "ClusterRole")),
    ),
)
changes = st.lists(st.tuples(st.sampled_from((WEB, ADMIN)), objects, st.booleans()), max_size=14)

resource_questions = st.builds(
    lambda user, verb, group, resource, ns, name: Attributes(
        user=user,
        verb=verb,
        cluster=WEB,
        group=group,
        resource=resource[0],
        subresource=resource[1],
        namespace=ns,
        name=name,
    ),
    st.sampled_from(USERS),
    st.sampled_from(("get", "list", "create", "delete")),
    st.sampled_from(("", "apps", "other")),
    st.sampled_from((("pods", ""), ("pods", "log"), ("secrets", ""), ("secrets", "scale"))),
    st.sampled_from(("", *NAMESPACES)),
    st.sampled_from(("", "a", "b", "c")),
)
url_questions = st.builds(
    lambda user, verb, path: Attributes(user=user, verb=verb, cluster=WEB, path=path),
    st.sampled_from(USERS),
    st.sampled_from(("get", "access", "post")),
    st.sampled_from(("/", "/api", "/api/v1", "/apis", "/other")),
)
questions = st.lists(st.one_of(resource_questions, url_questions), min_size=1, max_size=8)


@st.composite
def nearly_granted(draw: st.DrawFn) -> tuple[list[tuple[str, Object, bool]], list[Attributes]]:
    """A role and a binding that grant a question, but perhaps for other names or in another namespace."""
    question = draw(resource_questions)
    verbs, groups, names = [question.verb], [question.group], draw(st.sampled_from(([], ["a"], ["b"])))
    rule = {"verbs": verbs, "apiGroups": groups, "resources": [question.resource_path], "resourceNames": names}
    # "" is a ClusterRole and a ClusterRoleBinding.
    role_namespace, bound = draw(st.sampled_from(("", *NAMESPACES))), question.namespace
    granted = role("r1", rule, namespace=role_namespace)
    kind = "Role" if role_namespace and bound else "ClusterRole"
    bind = binding("b1", "r1", f"User:{question.user.name}", namespace=bound, role_kind=kind)
    return [(WEB, granted, False), (WEB, bind, False)], [question]


Objects = dict[tuple[str, str, str, str], Object]


def model_allows(stored: Objects, wanted: Attributes) -> bool:
    """Decide by Kubernetes' RBAC and kcp's two layers of it, object by object."""
    access = (
        Attributes(user=wanted.user, verb="access", cluster=WEB, path="/"),
        Attributes(
            user=wanted.user,
            verb="access",
            cluster=WEB,
            group="core.kcp.io",
            resource="logicalclusters",
            name="cluster",
        ),
    )
    local_account = wanted.user.name.startswith("system:serviceaccount:")  # these need no access
    if not local_account and not any(_granted(stored, each, cluster_only=True) for each in access):
        return False
    return _granted(stored, wanted, cluster_only=False)


def _granted(stored: Objects, wanted: Attributes, cluster_only: bool) -> bool:
    for (cluster, kind, namespace, _), obj in stored.items():
        if kind == "ClusterRoleBinding" or (
            kind == "RoleBinding" and not cluster_only and namespace and namespace == wanted.namespace
        ):
            layers = [ADMIN] if cluster == ADMIN else [cluster, ADMIN]
            if _concerns(obj, namespace, wanted.user) and _role_allows(stored, layers, obj, namespace, wanted):
                return True
    return False


def _concerns(obj: Object, namespace: str, user: User) -> bool:
    for entry in obj["subjects"]:
        if entry["kind"] == "User" and entry["name"] == user.name:
            return True
        if entry["kind"] == "Group" and entry["name"] in user.groups:
            return True
        if entry["kind"] == "ServiceAccount":
            where = entry.get("namespace") or namespace
            if where and user.name == ":".join(["system", "serviceaccount", where, entry["name"]]):
                return True
    return False


def _role_allows(stored: Objects, layers: list[str], obj: Object, namespace: str, wanted: Attributes) -> bool:
    kind, name = obj["roleRef"]["kind"], obj["roleRef"]["name"]
    for layer in layers:
        found = stored.get((layer, kind, "" if kind == "ClusterRole" else namespace, name))
        if found is not None:
            return any(_rule_allows(rule, wanted) for rule in found["rules"])
    return False


def _rule_allows(rule: Object, wanted: Attributes) -> bool:
    if "*" not in rule["verbs"] and wanted.verb not in rule["verbs"]:
        return False
    if wanted.path:
        urls = rule.get("nonResourceURLs", [])
        return any(url == wanted.path or (url[-1] == "*" and wanted.path[: len(url) - 1] == url[:-1]) for url in urls)
    if "resources" not in rule or not {"*", wanted.group} & set(rule["apiGroups"]):
        return False
    resources = {"*", wanted.resource if not wanted.subresource else f"{wanted.resource}/{wanted.subresource}"}
    if wanted.subresource:
        resources.add("*/" + wanted.subresource)
    if not resources & set(rule["resources"]):
        return False
    return not rule.get("resourceNames") or wanted.name in rule["resourceNames"]


@settings(max_examples=drawn(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.one_of(st.tuples(changes, questions), nearly_granted()), min_size=1, max_size=4),
    st.sampled_from((True, True, True, False)),
)
def test_the_authorizer_agrees_with_a_naive_reading_of_the_objects(
    rounds: list[tuple[list[tuple[str, Object, bool]], list[Attributes]]], have_access: bool
) -> None:
    store, stored, authorizer = FakeStore(), Objects(), Authorizer()
    store.put(WEB, logical_cluster())
    for obj in ACCESS if have_access else ():
        apply(store, stored, ADMIN, obj, False)
    for made, wanted in rounds:
        for cluster, obj, remove in made:
            apply(store, stored, cluster, obj, remove)
        for question in wanted:
            expected = model_allows(stored, question)
            for _ in range(2):
                assert authorizer.authorize(store, question).allowed is expected, (question, stored)


def apply(store: FakeStore, stored: Objects, cluster: str, obj: Object, remove: bool) -> None:
    """Write an object, or remove the one of its name."""
    metadata = obj["metadata"]
    key = (cluster, obj["kind"], metadata.get("namespace", ""), metadata["name"])
    if remove and key in stored:
        del stored[key]
        store.delete(cluster, obj["kind"], metadata["name"], metadata.get("namespace", ""))
    elif not remove:
        stored[key] = obj
        store.put(cluster, obj)


@settings(max_examples=drawn(200), deadline=None)
@given(changes, questions)
def test_the_rules_listed_for_a_user_are_those_that_decide(
    made: list[tuple[str, Object, bool]], wanted: list[Attributes]
) -> None:
    store, stored, authorizer = FakeStore(), Objects(), Authorizer()
    store.put(WEB, logical_cluster())
    for obj in ACCESS:
        apply(store, stored, ADMIN, obj, False)
    for cluster, obj, remove in made:
        apply(store, stored, cluster, obj, remove)
    for question in wanted:
        listed = authorizer.rules(store, question.user, WEB, question.namespace).rules
        by_list = any(
            rule.matches_kind(question) and (not rule.names or bool(question.path) or question.name in rule.names)
            for rule in listed
        )
        assert authorizer.authorize(store, question).allowed is by_list


def test_the_model_can_disagree() -> None:
    """The model is not constant: it allows some requests and denies others."""
    stored: Objects = {
        (ADMIN, "ClusterRole", "", "r1"): role("r1", {"verbs": ["*"], "nonResourceURLs": ["*"]}),
        (WEB, "ClusterRoleBinding", "", "b1"): binding("b1", "r1", "User:alice"),
    }
    assert subject("User:alice")["name"] == "alice"
    assert model_allows(stored, Attributes(user=USERS[0], verb="get", cluster=WEB, path="/api"))
    assert not model_allows(stored, Attributes(user=USERS[1], verb="get", cluster=WEB, path="/api"))
