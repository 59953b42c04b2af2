"""How a head is called: messages, callers, and the declaration of calls."""
