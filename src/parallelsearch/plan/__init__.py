"""What the workflow asks about a study: its jobs, what each reads and writes, and what each needs of a cluster."""
