"""The front proxy: one door to all shards.

Here belongs what finds the shard of a request, says who asks, and carries bytes both ways. It keeps no state but what
the state streams said (routes, in its own store), so any number of proxies run beside each other. Deciding what a
caller may do does not belong here: a shard does.
"""
