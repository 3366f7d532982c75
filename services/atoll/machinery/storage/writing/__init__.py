"""Group commit: the queue of submits, one transaction for all that wait, one submit applied in its child transaction.

Every change of the file goes through `writer`. What runs in rounds (compaction, expiry, resealing) is `maintenance`,
whose steps are jobs of the writer.
"""
