"""`kubectl atoll events`: what changed in a workspace, or in all below it, and who changed which fields.

Here belong the command, the streams that it reads, and its rows. The changes are what `follow` of a workspace sends;
nothing here decides who may see them.
"""
