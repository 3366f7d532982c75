"""From syntax tree to typed tree: name resolution, type unification, and the validators that run on the result.

What belongs here: every issue that cel-go reports after parsing, and every question that is answered from static types
alone. What does not belong here: declarations of functions (`functions`, `std`, `ext`, `libraries`) and static costs
(`cost`).
"""
