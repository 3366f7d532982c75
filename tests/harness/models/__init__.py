"""What stands in for a part of the product in memory: a log, a snapshot, a projection, ownership on paper.

Models follow the contract of the part that they stand in for; tests compare the product with them or run on them.
"""
