"""How processes call the head of a long-lived cluster, and reach its nodes through it."""
