"""The simulator of Sapwood: the protocol under virtual time, faults, fuzzers, hostile peers.

It is for those who develop Sapwood: beside the tests, in no wheel. ``make torture`` and
``sapwood simulate`` run it.
"""
