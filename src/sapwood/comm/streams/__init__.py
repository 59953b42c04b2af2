"""Streams: broadcast down the tree, reduce up, exactly once.

``wave.py``
    One wave at one place.
``stream.py``
    One stream at one place: its waves.
``waves.py``
    What a place does with the waves of its streams.
"""
