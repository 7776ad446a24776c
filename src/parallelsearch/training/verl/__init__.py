"""Training jobs with veRL: an arm's settings as its configuration, its processes' plug-ins, and what comes back."""
