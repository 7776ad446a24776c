"""The semantics a reward can have: one file each, by the name that a configuration says."""
