"""A shard among others: what it takes from the root shard, its Shard object and heartbeat, accounts of other shards."""
