"""CEL expressions of admission: their variables, their compilation, their evaluation within a budget.

Belongs here: what policies of both kinds and the match conditions of webhooks share. Pure: the caller gives the values
of the variables. What decides by the results (denials, patches, calls of webhooks) does not belong here. Everything
here loads the language, so it is imported once a configuration acts on a write.
"""
