"""Groups (communicators): barrier, broadcast, scatter, gather and reductions among any places.

A group is a set of agents, and the client if it takes part. Its members *enter* it; the
lowest place that has all of them at or below it, the *coordinator*, gives it a number. From then on
the members call collectives, each member the same ones in the same order: what they give goes
up to the coordinator, put together on the way, and what comes out goes down to those that want it.
A collective ends for all members at once.

A call that does not fit (another operation or shape), a member that leaves, is lost or waits for
too long breaks the group: every member gets the error, now or at its next call, and the group
is gone. A new one can be entered.

``groups.py``
    The protocol: members join, collectives, recovery when the tree changes.
``members.py``
    What one place does as a member: its calls under way, time-outs.
``handle.py``
    A group as user code holds it: barrier, broadcast, scatter, gather, reduce, allreduce.
``events.py``
    Requests of members (events) and their outcomes (effects).
"""
