"""The folder of a run, which training writes and evaluation reads: settings, lock, metrics, checkpoints, policy."""
