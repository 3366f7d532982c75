"""The event gateway: says to NATS servers who the subscribers are that connect, and ends connections of those who lost
a right.

Here belong its settings, its process, and what it counts. `atoll start` runs the same gateway inside its shard.

Not here: subscriptions, and whether somebody may see a resource; the shard that holds a workspace decides both. What is
said to servers, and how, is in `machinery.stream.tenants`; the tokens are in `machinery.apiserver.authentication`.
"""
