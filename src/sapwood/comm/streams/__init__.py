"""Streams: broadcast down the tree, reduce up, exactly once.

``wave.py``, ``stream.py``
    One wave, and one stream with its waves, at one place.
``waves.py``, ``opening.py``
    What a place does with waves; how streams begin and end, and who is back comes into them.
``losses.py``, ``failures.py``, ``delays.py``, ``singles.py``
    Policies on loss, failures, time-outs and what is late, streams that do not wait.
``emissions.py``, ``emitted.py``
    What agents send without being asked, kept until the root has it.
``filtering.py``, ``parts.py``, ``outbox.py``, ``parameters.py``
    Own filters, what waits behind them, and their parameters.
``sending.py``, ``large.py``
    Values to the children; what is imported only when an array comes that a link cannot share:
``pieces.py``, ``draws.py``, ``forwarding.py``, ``announcements.py``, ``offers.py``
    Such arrays, drawn in pieces and put together on the way (``confluence.py``); ``offered.py``
    says what a wave knows of them.
``sweeps.py``, ``life.py``, ``counters.py``
    Flush, quiesce, resume and query; life of a stream as a table; what is counted.
``streams.py``
    All streams of one place: who takes which event and which message.
"""
