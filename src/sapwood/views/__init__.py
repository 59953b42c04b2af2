"""What people see of clusters and runs: words, alerts, and the pictures of dashboard and report."""
