"""Streams: broadcast down the tree, reduce up, exactly once.

``streams.py``
    All streams of one place: dispatch of events and messages.
``engine.py``
    The wave engine: what a place does with a wave, from the broadcast to the total, by the policy
    of its stream. Recovery, time-outs, the loss policy, failures, user-defined filters.
``stream.py``, ``wave.py``
    The state of one stream, with its life as a table, and of one wave at one place.
``roster.py``, ``filters.py``, ``late.py``, ``contributors.py``
    Parts of the state of a stream: its members; user-defined filters; waves whose time is over;
    single agents. Each policy has its own part.
``opening.py``
    How streams open and close, and how a place that is attached hears of them.
``push.py``
    Contributions that agents push without a wave, kept until the root has them (flow control).
``control.py``
    Control operations: flush, quiesce, resume and query.
``bulk.py``, ``fetch.py``, ``bulk_reduce.py``
    Large arrays that a link cannot share, by rendezvous: advertised, fetched in pieces, and reduced
    chunk by chunk on their way.
"""
