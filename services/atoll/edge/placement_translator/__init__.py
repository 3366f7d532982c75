"""The placement translator: workload objects become copies in mailboxes, and a list of them for the syncer.

What belongs here, in the order of the data: placements, destinations and mailboxes as they are (`topology`), what a
workspace sends (`contents`), what one mailbox is to have of it (`composition`, of `versions`, `rendering` and
`conflicts`), copies in a mailbox (`copies`, with `records` of what was applied) and their list (`projection`, which
`listing` makes), the status of placements (`placement_status`), Events at objects (`object_events`), reported states
(`reported_states`).
`translator` joins them. What does not belong here: the rules, which are pure (`machinery.edge`).
"""
