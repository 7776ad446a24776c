"""The policy before reinforcement learning: built and trained on demonstrations, or taken from a package."""
