"""From source text to syntax tree: lexer, parser, macro expansion, and the tree itself.

What belongs here: everything that is decided before any name has a meaning, with cel-go's syntax errors. What does not
belong here: types and declarations (`checker`), and macros of the extension libraries (`ext`).
"""
