"""The Common Expression Language: source text in, a type-checked program with known costs out, plain Python data as
values.

What belongs here: everything that holds for CEL wherever it is used. The modules at this level are what callers and
libraries are written in: types, values, functions, budgets, `environment` and `program`. Below them are `syntax`,
`checker`, `cost` and `compiler`, the standard library (`std`), the extension libraries of cel-go (`ext`) and those of
Kubernetes (`libraries`). The package is pure: it reads no clock except through the pause of a `Budget`, opens nothing
and keeps no task.

What does not belong here: the conversion of OpenAPI schemas to CEL types, the place of rules in an object (`kinds`),
and the thread that runs a long evaluation (`process.time_slicing`).
"""
