"""Vocabulary: errors, trees, sets of ranks. Pure, no I/O; everything may import it."""
