"""`kubectl kubestellar`: inventories, workspaces for workloads, registration of edge clusters.

What belongs here: commands of the plug-in, one module a group, that call the API as their user and change no kubeconfig
but for `view`. What does not belong here: what the edge service itself keeps (`atoll.edge`).
"""
