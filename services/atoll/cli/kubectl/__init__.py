"""The kubectl plug-ins: `kubectl ws`, `kubectl create workspace`, `kubectl kcp`, `kubectl atoll`, and their completion.

They use only the kubeconfig and the API and import no part of a server, so that they start in a tenth of a second.
"""
