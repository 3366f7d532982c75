"""Columns of tables by kind: names, types, formats and priorities, in the order of kube-apiserver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_PRINTERS = "pkg/printers/internalversion/printers.go"
_APISERVICES = "pkg/registry/apiservice/etcd/etcd.go"
_LIST = re.compile(
    r"^\t(\w+) :?= (?:append\(\w+, )?\[\]metav1\.TableColumnDefinition\{\n(.*?)^\t\}", re.MULTILINE | re.DOTALL
)
_COLUMN = re.compile(r'^\s*\{Name: "([^"]+)", Type: "(\w+)"(.*)$', re.MULTILINE)
_PRIORITY = re.compile(r"Priority: (\d)")
_HANDLER = re.compile(r"TableHandler\((\w+), (print\w+)\)")
_PRINTER = re.compile(r"^func (print\w+)\(\w+ \*\w+\.(\w+),", re.MULTILINE)


def columns(kubernetes: Path, aggregator: Path) -> dict[str, list[Object]]:
    """Return the columns of each kind that kube-apiserver has a printer for."""
    text = (kubernetes / _PRINTERS).read_text()
    lists: dict[str, list[Object]] = {}
    for name, body in _LIST.findall(text):
        lists.setdefault(name, []).extend(_columns(body))
    printed = dict(_PRINTER.findall(text))
    found = {printed[function]: lists[name] for name, function in _HANDLER.findall(text) if name in lists}
    # The aggregator has a printer of its own.
    found["APIService"] = _columns((aggregator / _APISERVICES).read_text())
    return found


def _columns(text: str) -> list[Object]:
    found = []
    for name, kind, rest in _COLUMN.findall(text):
        column: Object = {"name": name, "type": kind}
        if 'Format: "name"' in rest:
            column["format"] = "name"
        if priority := _PRIORITY.search(rest):
            column["priority"] = int(priority[1])
        found.append(column)
    return found
