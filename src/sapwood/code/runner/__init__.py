"""Runner processes: where user code runs, so that its failures stay its own."""
