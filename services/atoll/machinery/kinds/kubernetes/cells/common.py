"""Accessors that many kinds share: age, containers and images, labels and selectors, lists that are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import SelectorError, compile_label_selector
from atoll.machinery.meta.times import age

#: Takes the object and now in epoch seconds.
Accessor = Callable[[Object, float], object]
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"
#: Entries of a list that are shown; the others are counted.
MAX_ENTRIES = 3
_DEFAULT = ("ingressclass.kubernetes.io/is-default-class", "storageclass.kubernetes.io/is-default-class")
_OLD_DEFAULT = "storageclass.beta.kubernetes.io/is-default-class"


def containers(*path: str) -> Accessor:
    """Return the accessor of the names of the containers in the PodSpec at a path."""
    return lambda obj, now_s: ",".join(text(each, "name") for _, each in objects(obj, *path, "containers"))


def images(*path: str) -> Accessor:
    """Return the accessor of their images."""
    return lambda obj, now_s: ",".join(text(each, "image") for _, each in objects(obj, *path, "containers"))


def labels(*path: str) -> Accessor:
    """Return the accessor of the labels at a path, as text."""
    return lambda obj, now_s: label_text(mapping(obj, *path))


def label_text(found: Object) -> str:
    """Return labels in the order of their keys."""
    return ",".join(f"{key}={value}" for key, value in sorted(found.items())) or NONE


def selector(*path: str) -> Accessor:
    """Return the accessor of the text of the LabelSelector at a path."""
    return lambda obj, now_s: selector_text(mapping(obj, *path)) or NONE


def selector_text(found: Object) -> str:
    """Return the text of a LabelSelector."""
    try:
        return str(compile_label_selector(found))
    except (SelectorError, AttributeError, KeyError, TypeError):
        return "<error>"


def cut(found: Sequence[str], limit: int = MAX_ENTRIES, separator: str = ",") -> str:
    """Return the first entries, and how many there are more."""
    more = len(found) - limit
    return separator.join(found[:limit]) + (f" + {more} more..." if more > 0 else "")


def is_deleting(obj: Object) -> bool:
    """Return whether the deletion of an object has begun."""
    return bool(mapping(obj, "metadata").get("deletionTimestamp"))


def holds(obj: Object, type: str) -> bool:
    """Return whether a condition of an object's status is True."""
    found = (each for _, each in objects(obj, "status", "conditions") if each.get("type") == type)
    return any(each.get("status") == "True" for each in found)


def _age(obj: Object, now_s: float) -> object:
    return age(mapping(obj, "metadata").get("creationTimestamp"), now_s)


def _selector(obj: Object, now_s: float) -> object:
    return selector_text(mapping(obj, "spec", "selector")) or NONE


def _name_of_default(obj: Object, now_s: float) -> object:
    notes = mapping(obj, "metadata", "annotations")
    is_default = any(notes.get(key) == "true" for key in (*_DEFAULT, _OLD_DEFAULT))
    return text(obj, "metadata", "name") + (" (default)" if is_default else "")


def _phase(obj: Object, now_s: float) -> object:
    return "Terminating" if is_deleting(obj) else text(obj, "status", "phase")


def _controller(obj: Object, now_s: float) -> object:
    for _, owner in objects(obj, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            group = text(owner, "apiVersion").rpartition("/")[0]
            kind = f"{text(owner, 'kind')}.{group}" if group else text(owner, "kind")
            return f"{kind.lower()}/{text(owner, 'name')}"
    return NONE


def _pod_labels(obj: Object, now_s: float) -> object:
    return label_text(mapping(obj, "template", "metadata", "labels"))


def _template(obj: Object) -> Object:
    """Return the PodSpec of a kind with a template, which a PodTemplate has at its top."""
    return mapping(obj, "spec", "template", "spec") or mapping(obj, "template", "spec")


def _containers(obj: Object, now_s: float) -> object:
    return containers()(_template(obj), now_s)


def _images(obj: Object, now_s: float) -> object:
    return images()(_template(obj), now_s)


def count(*path: str) -> Accessor:
    """Return the accessor of the length of a list."""
    return lambda obj, now_s: len(items(obj, *path))


COMMON: dict[str, Accessor] = {
    "age": _age,
    "containers": _containers,
    "controller": _controller,
    "images": _images,
    "label_map": labels("spec", "selector"),
    "name_of_default": _name_of_default,
    "phase": _phase,
    "pod_labels": _pod_labels,
    "selector": _selector,
}
