"""The reference pages of the documentation, made from the code that they describe.

Holds: `mkdocs build` makes them anew each time, so none of them is stale; none is committed.
Never: needs a stack, a socket or settings.
"""
