"""Session servers: separate processes with the roots of sessions; and clients' ports to them."""
