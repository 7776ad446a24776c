"""The reward: one pure function for each component, one composition."""
