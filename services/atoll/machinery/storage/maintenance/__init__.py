"""Upkeep of a store: retention, expiry, resealing, scrubbing, resident memory, and checks of a file.

Steps that write are bounded jobs of `writing.writer`. What a request waits for does not belong here.
"""
