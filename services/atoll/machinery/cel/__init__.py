"""The Common Expression Language: text in, a checked and priced program out, Python data as values.

Here belongs everything that is true of CEL wherever it is used: lexer and parser, macros, the type checker,
compilation to closures, the cost at run time and its static estimate, the standard library, the extension
libraries of cel-go (`ext`) and those that Kubernetes declares (`libraries`). The package is pure: it reads no
clock but the one handed to a `Budget`, opens nothing, keeps no task.

What does not belong here: how an OpenAPI schema becomes CEL types and where rules stand in an object
(`kinds`), and on which thread a long evaluation runs (`process.slices`).
"""
