"""Customization: an object of a workload workspace as one destination is to have it.

`render` of the placement translator, and `kubectl kubestellar customize`, call `customized`: first the object's own
texts are expanded, if it asks for it, then the replacements of its Customizer are made in their order. Invariants:
either all of it is done, or a `CustomizationError` names the line that cannot be; steps and bytes are bounded; what an
object is (`identity`) and the annotations that control this stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from atoll.machinery.edge.json_paths import BadPath, Budget, OverBudget, parse, replaced
from atoll.machinery.edge.names import CUSTOMIZER, EXPAND, GROUP, ObjectRef
from atoll.machinery.meta.objects import Object, annotations_of, labels_of

#: What all expansions and replacements of one object may take.
MAX_STEPS, MAX_BYTES = 50_000, 1024 * 1024
#: Most undefined parameters that are named.
MAX_UNDEFINED = 10
#: The kind of Customizers.
CUSTOMIZERS = (GROUP, "customizers")
_CONTROLLING = frozenset({CUSTOMIZER, EXPAND})
_decode = msgspec.json.Decoder().decode


class CustomizationError(ValueError):
    """An object that cannot be rendered for a destination; the text names the line that is wrong."""


class Customized(msgspec.Struct, frozen=True):
    """An object for one destination, and the parameters in it that its Location does not define."""

    obj: Object
    undefined: tuple[str, ...] = ()


def customizer_of(obj: Object) -> ObjectRef | None:
    """Return the Customizer that an object names, None without one."""
    text = annotations_of(obj).get(CUSTOMIZER, "")
    if not text:
        return None
    namespace, has_namespace, name = text.partition("/")
    if not has_namespace:
        namespace, name = obj["metadata"].get("namespace", ""), text
    return ObjectRef(*CUSTOMIZERS, namespace, name)


def expands(obj: Object) -> bool:
    """Whether an object or a Customizer asks for its parameters."""
    return annotations_of(obj).get(EXPAND) == "true"


def parameters_of(location: Object) -> dict[str, str]:
    """Return the parameters that a Location defines; of a label and an annotation of one name the label counts."""
    return {**annotations_of(location), **labels_of(location)}


def identity(obj: Object) -> tuple[Any, ...]:
    """Return what an object is, whatever it says."""
    metadata = obj.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return obj.get("apiVersion"), obj.get("kind"), found.get("name"), found.get("namespace")


def customized(obj: Object, customizer: Object | None, parameters: Mapping[str, str] | None) -> Customized:
    """Return an object, which is changed, as a destination with these parameters is to have it.

    `parameters` is None where the Location is gone, which matters to those alone that ask for any. Raises
    CustomizationError.
    """
    work = _Work(parameters)
    try:
        if expands(obj):
            obj = work.expanded_object(obj)
        if customizer is not None:
            obj = work.replaced(obj, customizer)
    except OverBudget as error:
        raise CustomizationError(f"{work.line}: {error}") from error
    except RecursionError as error:
        raise CustomizationError(f"{work.line}: the value is nested too deeply") from error
    return Customized(obj, tuple(sorted(work.undefined)))


class _Work:
    """One customization."""

    def __init__(self, parameters: Mapping[str, str] | None) -> None:
        self._parameters = parameters
        self._budget = Budget(MAX_STEPS, MAX_BYTES)
        self.undefined: set[str] = set()
        #: What is in work, for messages.
        self.line = "the object"

    def expanded_object(self, obj: Object) -> Object:
        """Return an object with its texts expanded, but for those that say what it is or control this."""
        metadata = obj["metadata"]
        controlling = {key: text for key, text in annotations_of(obj).items() if key in _CONTROLLING}
        kept = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
        found: Object = self._expanded(obj)
        found["metadata"].update(kept)
        found["metadata"]["annotations"].update(controlling)
        return {**found, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}

    def _expanded(self, value: Any) -> Any:
        self._budget.step()
        if isinstance(value, str):
            return self.expanded(value)
        if isinstance(value, dict):
            return {key: self._expanded(each) for key, each in value.items()}
        return [self._expanded(each) for each in value] if isinstance(value, list) else value

    def expanded(self, text: str) -> str:
        """Return a text with its parameters; `%%` is `%`, and what is not defined stays as it is written."""
        if "%" not in text:
            return text
        return "".join(self._parts(text))

    def _parts(self, text: str) -> Iterator[str]:
        if self._parameters is None:
            raise CustomizationError(f"{self.line}: its Location is not there")
        at, last = 0, text.rfind(")")
        while (start := text.find("%", at)) >= 0:
            self._budget.step()
            yield text[at:start]
            # After the last parenthesis nothing closes, and what does not close is no parameter.
            is_parameter = text.startswith("(", start + 1) and start < last
            end = text.index(")", start) if is_parameter else start + 1
            value = self._value(text[start + 2 : end]) if is_parameter else "%"
            self._budget.write(len(value))
            yield value
            at = end + 1 if is_parameter or text.startswith("%", end) else end
        yield text[at:]

    def _value(self, name: str) -> str:
        found = (self._parameters or {}).get(name)
        if found is not None:
            return found
        if len(self.undefined) < MAX_UNDEFINED:
            self.undefined.add(name)
        return f"%({name})"

    def replaced(self, obj: Object, customizer: Object) -> Object:
        """Return an object with the replacements of a Customizer."""
        metadata, is_expanded = customizer["metadata"], expands(customizer)
        before, title = identity(obj), f"Customizer {metadata.get('namespace', '')}/{metadata['name']}"
        for number, each in enumerate(customizer.get("replacements") or ()):
            line = f"{title}: replacements[{number}]"
            self.line = f"{line}.path"
            path_text = self.expanded(each["path"]) if is_expanded else each["path"]
            try:
                path = parse(path_text)
            except BadPath as error:
                raise CustomizationError(f"{self.line}: {error}") from error
            self.line = f"{line}.value"
            text = self.expanded(each["value"]) if is_expanded else each["value"]
            make = self._maker(text)
            self.line = line
            obj = replaced(obj, path, make, self._budget)
            if problem := _problem(obj, before):
                raise CustomizationError(f"{line}: {problem}")
        return obj

    def _maker(self, text: str) -> Any:
        self._budget.write(len(text))
        try:
            _decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise CustomizationError(f"{self.line}: is no JSON: {error}") from error

        def make() -> Any:
            self._budget.write(len(text))
            return _decode(text)

        return make


def _problem(obj: Any, before: tuple[Any, ...]) -> str:
    """Return why a result is no object that may be sent, "" if it is one."""
    if not isinstance(obj, dict) or not isinstance(metadata := obj.get("metadata"), dict):
        return "the result is no object with metadata"
    if identity(obj) != before:
        return "changes apiVersion, kind, name or namespace"
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        if entries is not None and not (isinstance(entries, dict) and all(map(_is_text, entries.values()))):
            return f"the result has metadata.{field} that are no texts"
    if not _is_list(metadata.get("finalizers"), _is_text):
        return "the result has metadata.finalizers that are no texts"
    if not _is_list(metadata.get("ownerReferences"), _is_reference):
        return "the result has metadata.ownerReferences that are none"
    return ""


def _is_list(value: Any, test: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(test, value)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("uid"), str)
