"""Command line programs: `atoll`, and the kubectl plug-ins it installs.

Plug-ins (`ws`, `create_workspace`, `kcp` with a module for each command, `atoll`, and their shell completion) use only
the kubeconfig and the API and import no part of a server, so that they start in a tenth of a second. Belongs here:
arguments, output, exit codes (0 success, 1 failure, 2 usage error). Does not belong here: the work of the commands of
`atoll` (`standalone`, `machinery.storage`).
"""
