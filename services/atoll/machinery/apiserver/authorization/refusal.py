"""Texts of refusals: Kubernetes' 403 messages, byte for byte.

The pipeline, impersonation and reviews call `forbidden`. Invariant: the text depends on the request alone, never on
existing objects, so an unknown workspace and a forbidden one read the same.
"""

from __future__ import annotations

import json

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.meta.status import Details, Forbidden

#: kcp's reason if the user has no access to the workspace, or there is none.
WORKSPACE_ACCESS_NOT_PERMITTED = "workspace access not permitted"
#: kcp's reason for every other refusal; audit has the details.
ACCESS_DENIED = "access denied"

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def quoted(text: str) -> str:
    """A text in double quotes, as Go's %q prints it."""
    return json.dumps(text, ensure_ascii=False)


def quoted_list(texts: tuple[str, ...]) -> str:
    """A list as Go's %q prints it: quoted, separated by blanks, in brackets."""
    return "[" + " ".join(quoted(text) for text in texts) + "]"


def forbidden(attributes: Attributes, reason: str = "") -> Forbidden:
    """The 403 error for a request that the authorizer did not allow."""
    text = _sentence(attributes).translate(_HTML)
    if reason:
        text = f"{text}: {reason}"
    if not attributes.is_resource:
        return Forbidden(f"forbidden: {text}")
    group_resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    name = f" {quoted(attributes.name)}" if attributes.name else ""
    details = Details(attributes.name, attributes.group, attributes.resource)
    return Forbidden(f"{group_resource}{name} is forbidden: {text}", details)


def _sentence(attributes: Attributes) -> str:
    subject = f"User {quoted(attributes.user.name)} cannot {attributes.verb}"
    if not attributes.is_resource:
        return f"{subject} path {quoted(attributes.path)}"
    namespace = attributes.namespace
    scope = f"in the namespace {quoted(namespace)}" if namespace else "at the cluster scope"
    resource = f"resource {quoted(attributes.resource_path)} in API group {quoted(attributes.group)}"
    return f"{subject} {resource} {scope}"
