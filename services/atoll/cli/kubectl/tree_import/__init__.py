"""`kubectl atoll import`: a tree of workspaces of kcp, or of another site, copied by its API.

Here belong the walk of the source, the order of the steps, what of an object is carried, and the writing. Each step
looks at what the site has, so that another run goes on where one stopped. Nothing is written to the source.
"""
