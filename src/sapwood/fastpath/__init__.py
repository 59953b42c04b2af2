"""Shortcuts: waves and calls that are like the ones before them, without Python's protocol core.

Nothing needs this room. The rooms below find it with :func:`sapwood.core.optional.fastpath`, and
work without it where it is not installed, its library could not be built, or ``comm.fastpath`` is
off. Delete the folder, and everything works, some microseconds later.

``exchange.py``
    At the client: the thread that wants a wave sends and gathers it itself.
``relay.py``
    At an agent: waves pass to the runner and back by a library.
``repeat.py``
    In a runner: native maps are called again by a library.

Links with TLS are used, too: the library calls the functions of Python that encrypt and decrypt.

Each of them anticipates, and keeps a journal; the protocol core replays that afterwards
(``Channel.replay``, ``RunnerHost.replay``), and what it wants to send must be what was sent.
"""
