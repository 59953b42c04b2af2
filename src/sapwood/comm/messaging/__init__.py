"""Messages from any place to any other over the tree, each exactly once and in order.

``delivery.py``
    Reliable delivery: routing, multicast, acknowledgements, retransmission.
``ordering.py``
    Sequence numbers, send and receive windows between two places (flow control from end to end).
``membership.py``
    Processes that are gone or back: membership notices of the client.
``active.py``
    Active messages (RPC): requests by the name of a handler, and their replies.
``point_to_point.py``, ``envelope.py``
    Tagged messages and the receives that match them; their sources, destinations and tags.
``rendezvous.py``
    Bulk transfer of large payloads, in pieces where memory cannot be shared.
``events.py``
    Requests of the layer above (events) and their outcomes (effects).
"""
