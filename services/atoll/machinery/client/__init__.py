"""A Kubernetes client: kubeconfig, typed requests, watch-list informers over any cluster or all of them.

Used by the kubectl plug-ins, by tests, benchmarks and third parties; README.md here has a whole controller. Belongs
here: speaking the API as a client does, with the same error classes the server raises. Does not belong here: how the
server answers, the work queue (`machinery.control`), sockets (`machinery.wire`).
"""
