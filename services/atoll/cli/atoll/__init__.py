"""The program `atoll`: starts processes, checks a machine, looks after a store.

Arguments, printing and exit codes (0 done, 1 not done, 2 not understood) belong here; what the commands do belongs to
`standalone`, `shard`, `frontproxy`, `cacheserver`, `eventgateway`, `edge` and `machinery.storage`.
"""
