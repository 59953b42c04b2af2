"""Letters: from any place to any other over the tree, each once and in order.

``letters.py``, ``parcel.py``, ``census.py``
    Sent, passed on and divided where ways part; what a letter holds; who is gone.
``ordering.py``
    Numbers, windows and receipts between two places.
``active.py``
    Requests by the name of a handler, and their answers.
``tagged.py``, ``match.py``
    Tagged messages, and the receives that want them.
``transfers.py``
    Large payloads, in pieces where memory cannot be shared.
``events.py``
    What the layer above wants of all this, and what becomes of it.
"""
