"""What the system notes on objects so that other shards read them, and how far: words and levels of replication.

Admission notes what follows as an object comes in (`reach`), the controller what follows later, from others. How
objects then travel is `replication`'s and the streams' affair, not this package's.
"""
