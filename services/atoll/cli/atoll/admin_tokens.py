"""`atoll rotate-admin-tokens`: revokes the tokens of a shard's admin.kubeconfig.

Called by `main`. The next start of the shard makes new tokens and writes them into the file. Invariant: no token is
printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from atoll.cli.atoll.output import fail
from atoll.machinery.apiserver.authentication.admin_tokens import revoke_admin_tokens
from atoll.shard.config import ShardConfig


def rotate(arguments: Sequence[str]) -> int:
    """Revoke the tokens. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    try:
        if not revoke_admin_tokens(Path(found.root_directory)):
            return fail(f"{found.root_directory} has no tokens of administrators")
    except OSError as error:
        return fail(str(error))
    sys.stdout.write(
        "Restart the shard now. It makes new tokens of kcp-admin and shard-admin, and writes them into"
        " admin.kubeconfig; until then it accepts the earlier ones.\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    text = "Revoke the tokens of kcp-admin and shard-admin in admin.kubeconfig; the next start makes new ones."
    parser = argparse.ArgumentParser(prog="atoll rotate-admin-tokens", description=text, allow_abbrev=False)
    default = ShardConfig().root_directory
    parser.add_argument("--root-directory", default=default, help=f"the shard's root directory (default {default})")
    return parser
