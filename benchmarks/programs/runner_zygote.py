"""A zygote with one channel: what forks the runner of ``native_code.py``."""

import socket
import sys

from sapwood.contexts import members, orders, plan, process, zygote

ENTRY = "sapwood.activity.procedures"

process.adopt_orphans()
control, channel = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
server = zygote.Zygote(control, plan.Plan((), (ENTRY,), f"{ENTRY}:main"))
agent = members.Member(members.Tree(control), orders.ProcessSpec("", 1, 1), channel)
server._listen_to(agent)  # noqa: SLF001 - it would have forked the agent
server._complete_imports()  # noqa: SLF001 - as above
server.run()
