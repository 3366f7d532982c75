"""The key that signs the events of shards in tests without their own key."""

from __future__ import annotations

import base64

from atoll.machinery.stream.event_keys import EventKeys, SigningKey

KEY = SigningKey(base64.b64encode(bytes(32)).decode())
PUBLIC = EventKeys((KEY,)).announced
