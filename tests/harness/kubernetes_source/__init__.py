"""Facts of Kubernetes' own kinds, read from its published Go module: the data in `schemas/native/kubernetes`.

    PYTHONPATH=services:tests python -m harness.kubernetes_source            compares; ends with 1 if a file differs
    PYTHONPATH=services:tests python -m harness.kubernetes_source --write    writes the files

`modules` finds the source of the version that `tests/go/conformance/go.mod` pins, `selection` chooses the resources,
`openapi`, `discovery`, `columns` and `messages` each read one part, `files` lays out what they found. Go and its module
proxy are needed, nothing else. Names, types, numbers and marks are taken; descriptions are not.
"""
