"""Commands people type: `atoll`, and the kubectl plug-ins it installs.

Plug-ins (`ws`, `create_workspace`, `kcp` with a module for each command, `atoll`, and what completes them in a shell)
use the kubeconfig and the API, nothing else, and import no part of a server, so that they start in a tenth of a second.
Belongs here: arguments, printing, exit codes (0 done, 1 not done, 2 not understood). Does not belong here: what the
commands of `atoll` do (`standalone`, `machinery.storage`).
"""
