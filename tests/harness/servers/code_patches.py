"""Programs that change attributes of modules and classes of a running process, and take the changes back.

`mutant_shard` starts a process that serves this on a socket: each connection sends one program, which replaces the one
before it, and reads back nothing, or the traceback. Before each program all attributes are as they were at first.
"""

from __future__ import annotations

import ast
import socket
import threading
import traceback
from typing import Any

#: What a program is made of.
STATEMENTS = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef)
_MISSING: Any = object()


class CodePatches:
    """The assignments of the last program, with the values before."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def replace(self, program: str) -> None:
        """Undo the changes of the last program, and run this one."""
        self.undo()
        names: dict[str, Any] = {}
        for statement in ast.parse(program).body:
            assert isinstance(statement, STATEMENTS), f"not to be undone: {ast.unparse(statement)}"
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._keep(target, names)
            exec(compile(ast.Module([statement], []), "<patch>", "exec"), names)

    def undo(self) -> None:
        """Restore the value of every attribute, the last first."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)

    def _keep(self, target: ast.expr, names: dict[str, Any]) -> None:
        if isinstance(target, ast.Attribute):
            owner = eval(ast.unparse(target.value), names)
            self._before.append((owner, target.attr, vars(owner).get(target.attr, _MISSING)))


def serve(address: str) -> None:
    """Listen at an abstract socket, in a thread; a child process that inherits the address leaves it to its parent."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0{address}")
    except OSError:
        listener.close()
        return
    listener.listen()
    threading.Thread(target=_run, args=[listener], daemon=True).start()


def _run(listener: socket.socket) -> None:
    patches = CodePatches()
    while True:
        connection = listener.accept()[0]
        with connection, connection.makefile("rb") as sent:
            try:
                patches.replace(sent.read().decode())
            except Exception:
                connection.sendall(traceback.format_exc().encode())


def send(address: str, program: str) -> None:
    """Have the process that listens there run a program. Raises AssertionError with its traceback."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answer:
        connection.settimeout(60)
        connection.connect(f"\0{address}")
        connection.sendall(program.encode())
        connection.shutdown(socket.SHUT_WR)
        failed = answer.read().decode()
    assert not failed, failed
