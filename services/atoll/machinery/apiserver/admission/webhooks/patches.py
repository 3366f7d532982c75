"""Application of the JSON patch of a mutating webhook.

`caller` runs it beside the event loop where patch or object are large. Invariant: a patch that does not apply, that
makes the object too large, or that changes who it is, rejects the request with a clear error, and nothing remains.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.apiserver.admission.configured.protected import TooLarge, encoded, protected_change
from atoll.machinery.apiserver.admission.webhooks.failures import internal_error
from atoll.machinery.apiserver.call.call import MAX_BODY
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError
from atoll.machinery.patch.errors import PatchDoesNotApply, PatchError
from atoll.machinery.patch.json_patch import apply_json_patch


def patched(name: str, obj: Object | None, patch: bytes) -> Object | None:
    """Return the object with the patch of the webhook `name` applied; None if it is unchanged. Raises ApiError."""
    if len(patch) > MAX_BODY:
        raise internal_error(f'the patch of admission webhook "{name}" is larger than {MAX_BODY} bytes')
    try:
        operations = msgspec.json.decode(patch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise internal_error(f"error decoding patch: {error}") from error
    if operations is None or operations == []:
        return None
    if obj is None:
        text = f'admission webhook "{name}" attempted to modify the object, which is not supported for this operation'
        raise internal_error(text)
    try:
        found = apply_json_patch(obj, operations)
    except PatchDoesNotApply as error:
        raise internal_error(error.detail) from error
    except PatchError as error:
        assert isinstance(error, ApiError)
        raise internal_error(error.message) from error
    return _checked(name, obj, found)


def _checked(name: str, obj: Object, found: Object) -> Object | None:
    try:
        value = encoded(found)
    except TooLarge as error:
        raise internal_error(f'admission webhook "{name}" {error}') from error
    changed = protected_change(obj, found)
    if changed:
        raise internal_error(f'admission webhook "{name}" attempted to change {changed}, which is not permitted')
    # A value of its own: parts of it may be those of the object before, or of the patch.
    return None if value == encode_json(obj) else decode(value)
