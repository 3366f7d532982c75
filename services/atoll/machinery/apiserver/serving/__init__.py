"""HTTP serving: the request pipeline, routing to verbs, reads and watches, fixed documents, health, audit.

`pipeline` orders authentication, cluster resolution and authorization; `resources` dispatches to the verb. Verbs belong
to `apiserver.rest`, commits to `apiserver.writing`.
"""
