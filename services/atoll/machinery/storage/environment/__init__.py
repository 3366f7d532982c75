"""The LMDB environment of a store: its directory, databases, type numbers and free space.

Here belongs what opens, creates and measures the file. What the rows mean is `encoding`; who reads and writes them are
`reading` and `writing`.
"""
