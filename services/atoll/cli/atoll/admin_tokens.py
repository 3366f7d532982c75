"""`atoll rotate-admin-tokens`: replaces the tokens in a shard's admin.kubeconfig, of a running shard too.

Called by `main`. The hashes of new tokens are stored first; a running shard accepts them within a second, and those
before for some seconds more, in which the kubeconfig is written. Whoever reads the file meanwhile is never refused.
Invariants: no token is printed; a run that was cut off is made good by the next, or by a start of the shard.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from atoll.cli.atoll.output import fail
from atoll.machinery.apiserver.authentication.admin_tokens import rotate_admin_tokens
from atoll.machinery.process.file_watch import CHECK_EVERY_S
from atoll.shard import kubeconfig
from atoll.shard.config import ShardConfig


def rotate(arguments: Sequence[str]) -> int:
    """Replace the tokens. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    config = ShardConfig(root_directory=found.root_directory, kubeconfig_path=found.kubeconfig_path)
    if not kubeconfig.stored_admin_tokens(config.kubeconfig_file):
        return fail(f"{config.kubeconfig_file} has no tokens of administrators: name the file with --kubeconfig-path")
    try:
        tokens = rotate_admin_tokens(Path(found.root_directory))
        if not tokens:
            return fail(f"{found.root_directory} has no tokens of administrators")
        # A running shard knows the new tokens by then.
        time.sleep(2 * CHECK_EVERY_S)
        kubeconfig.replace_tokens(config.kubeconfig_file, tokens)
    except OSError as error:
        return fail(str(error))
    sys.stdout.write(f"{config.kubeconfig_file} has new tokens; copies of it are refused within 10 seconds\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    text = "Replace the tokens of kcp-admin and shard-admin in admin.kubeconfig; the shard may run."
    parser = argparse.ArgumentParser(prog="atoll rotate-admin-tokens", description=text, allow_abbrev=False)
    default = ShardConfig()
    parser.add_argument(
        "--root-directory",
        default=default.root_directory,
        help=f"the shard's root directory (default {default.root_directory})",
    )
    parser.add_argument("--kubeconfig-path", default="", help="the kubeconfig, if it is not in the root directory")
    return parser
