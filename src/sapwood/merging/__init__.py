"""Sessions merged into one another: streams over the agents of both.

Nothing needs this package. The packages below find it with :func:`sapwood.core.optional.merging`,
and without it a session server refuses calls about merges.
"""
