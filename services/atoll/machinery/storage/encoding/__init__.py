"""The bytes of keys and rows, and what the store derives from the bytes of an object.

Here belongs the layout of the LMDB file, as pure functions: object keys and their prefixes, binary rows, the facts that
indexes keep of an object. Transactions and cursors do not belong here.
"""
