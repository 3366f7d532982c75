"""One file a scenario; its docstring's first paragraph is the question that it answers.

Each has `async def run(bench) -> list[Row]`, makes its own server and leaves nothing behind. Sizes and times are
bounded: `bench.size(quick, full)`, `bench.seconds(quick, full)`.
"""

#: In the order of the table of budgets.
ORDER = (
    "start",
    "idle",
    "memory",
    "get",
    "create",
    "floor",
    "patch",
    "admission",
    "neighbours",
    "apply",
    "list",
    "watch",
    "workspace",
    "initializer",
    "homes",
    "recordedhomes",
    "deletion",
    "backup",
    "event",
    "events",
    "eventloop",
    "exportview",
    "bindings",
    "definitions",
    "kubernetes",
    "deployments",
    "cel",
    "policies",
    "quota",
    "dependents",
    "replicas",
    "workers",
    "frontproxy",
    "bindacross",
    "exports",
    "edge",
    "edgescale",
    "stolentoken",
)
