"""The tree as a whole: its processes started, watched, replaced, ended."""
