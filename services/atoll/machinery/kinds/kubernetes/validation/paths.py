"""Paths of files inside of volumes and containers."""

from __future__ import annotations

from atoll.machinery.kinds.kubernetes.validation.rules import Errors
from atoll.machinery.schema.fielderrors import invalid

MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"


def no_backsteps(path: str, field: str) -> Errors:
    """Check that a path does not leave its folder."""
    if ".." in path and ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def descending(path: str, field: str) -> Errors:
    """Check a path below a folder."""
    if path.startswith("/"):
        yield invalid(field, path, "must be a relative path")
    yield from no_backsteps(path, field)


def not_reserved(path: str, field: str) -> Errors:
    """Check a path below a folder, where names that begin with two dots are the kubelet's."""
    yield from descending(path, field)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid(field, path, "must not start with '..'")


def mode(value: object, field: str) -> Errors:
    """Check the permissions of a file."""
    if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= 0o777:
        yield invalid(field, value, MODE_TEXT)
