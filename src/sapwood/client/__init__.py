"""The public Python API, re-exported by ``sapwood``; nothing else is public."""
