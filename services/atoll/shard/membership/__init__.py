"""Membership of a site: joining the root shard, the Shard object and its heartbeat, accounts of other shards."""
