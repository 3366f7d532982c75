"""Commands people type: `atoll`, and the kubectl plug-ins it installs.

Plug-ins use the kubeconfig and the API, nothing else. Belongs here: arguments, printing, exit codes. Does not belong
here: what the commands do (`standalone`, `machinery.client`).
"""
