"""The socket between the writer's process and API workers: frames, the writer's end, the worker's store.

Objects cross as the bytes that are stored. What a worker reads, it reads from the file, through `reader`.
"""
