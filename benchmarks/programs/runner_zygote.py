"""A zygote with one channel: what forks the runner of ``native_code.py``."""

import select
import socket
import sys

from sapwood.contexts import orders, process, zygote

ENTRY = "sapwood.activity.procedures"

process.adopt_orphans()
control, channel = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
server = zygote.Zygote(control, zygote.Plan((), (ENTRY,), f"{ENTRY}:main"))
channel.settimeout(0)
member = zygote.Member(orders.ProcessSpec("", 1, 1), channel)
server._members[-1] = server._channels[channel.fileno()] = member  # noqa: SLF001 - an agent would be there
server._poll.register(channel, select.POLLIN)  # noqa: SLF001 - as above
server._complete_imports()  # noqa: SLF001 - as above
server.run()
