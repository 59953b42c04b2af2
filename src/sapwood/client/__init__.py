"""The client: clusters, streams, groups, tasks; ``sapwood`` re-exports what is public."""
