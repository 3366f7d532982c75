"""HTTP requests in, replies out: the pipeline, routing to verbs, reads and watches, fixed documents, health, audit.

`pipeline` holds the order of authentication, cluster resolution and authorization; `resources` leads to the verb. What
a verb does belongs to `apiserver.rest`, how a write commits to `apiserver.writing`.
"""
