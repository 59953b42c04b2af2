"""Process life: which processes of a tree start, are watched, are replaced and end; no I/O."""
