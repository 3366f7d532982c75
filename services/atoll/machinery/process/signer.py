"""A signer that is replaced while it is in use: a CA, or the key of service account tokens.

Tools that keep the files of a site call it. `<name>.crt` (of a key: `<name>.pub`) is what verifiers trust: the public
part of `<name>.key` first, then others. A replacement takes three steps, with time in between for every verifier to
read the file: `prepare` adds the next signer, which is trusted and signs nothing; `promote` has it sign; `retire` ends
the trust in those before. Invariants: what signs is first in the trusted file; a step that was cut off is completed by
`settle`, and each step may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from atoll.machinery.process.private_files import write_private

_PEM = re.compile(rb"-----BEGIN ([^-]+)-----.*?-----END \1-----\n?", re.DOTALL)


class Signer(msgspec.Struct, frozen=True):
    """The files of one signer in `directory`; `suffix` is that of its public part."""

    directory: Path
    name: str
    suffix: str

    @property
    def trusted(self) -> list[bytes]:
        """What verifiers trust, the one that signs first; empty before it was made. Raises OSError."""
        try:
            return [match[0].rstrip() + b"\n" for match in _PEM.finditer(self._public.read_bytes())]
        except FileNotFoundError:
            return []

    @property
    def is_prepared(self) -> bool:
        """Whether the next signer is trusted, and does not sign yet. Raises OSError."""
        return self._next_public.exists() and self._next_public.read_bytes() in self.trusted

    def settle(self) -> None:
        """Complete a promotion that was cut off. Raises OSError."""
        if self._next_public.exists() and self.trusted[:1] == [self._next_public.read_bytes()]:
            self.promote()

    def prepare(self, make: Callable[[], tuple[bytes, bytes]]) -> None:
        """Have the next signer trusted: `make` returns its public part and its key. Raises OSError."""
        if not self.is_prepared:
            public, key = make()
            write_private(self._next_key, key)
            write_private(self._next_public, public)
        self._trust([*self.trusted, self._next_public.read_bytes()])

    def promote(self) -> None:
        """Have the prepared signer sign from now on; those before stay trusted, and their keys are gone.

        Raises FileNotFoundError if none was prepared; OSError.
        """
        self._trust([self._next_public.read_bytes(), *self.trusted])
        write_private(self._key, self._next_key.read_bytes())
        # The public part last: while it is there, another call repeats all of this.
        self._next_public.unlink()
        self._next_key.unlink()

    def retire(self) -> int:
        """End the trust in what does not sign any more; return how many that were. Raises OSError."""
        before = self.trusted
        waiting = [self._next_public.read_bytes()] if self.is_prepared else []
        self._trust([*before[:1], *waiting])
        return len(before) - len(self.trusted)

    def _trust(self, parts: Iterable[bytes]) -> None:
        found = b"".join(dict.fromkeys(parts))
        if found != b"".join(self.trusted):
            write_private(self._public, found)

    @property
    def _public(self) -> Path:
        return self.directory / f"{self.name}.{self.suffix}"

    @property
    def _key(self) -> Path:
        return self.directory / f"{self.name}.key"

    @property
    def _next_public(self) -> Path:
        return self.directory / f"{self.name}.next.{self.suffix}"

    @property
    def _next_key(self) -> Path:
        return self.directory / f"{self.name}.next.key"
