"""The shared library of every process: API server, controllers' machinery, storage, stream, client, kinds.

Nothing here can be started; `atoll.shard` and its siblings are made of it.
"""
