"""From a policy to a trained policy: warm start on demonstrations, then reinforcement learning with veRL."""
