"""The nouns of a head, one file each: its calls, and the state that they are about."""
