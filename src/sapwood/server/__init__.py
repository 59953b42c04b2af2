"""What browsers, scripts and monitoring speak with: HTTP, in a process beside the head."""
