"""Groups: barrier, broadcast, scatter, gather and reductions among any places of the tree.

A group is a set of agents, and the front end if it takes part. Its members *enter* it; the
lowest place that has all of them at or below it, the *turn*, gives it a number. From then on
the members call operations, each member the same ones in the same order: what they give goes
up to the turn, put together on the way, and what comes out goes down to those that want it.
A round of one operation ends for all members at once.

What does not fit (another operation, another shape), a member that leaves, is lost or waits for
too long breaks the group: every member gets the error, now or at its next call, and the group
is gone. A new one can be entered.
"""
