"""Languages: how sources become something that can be called."""
