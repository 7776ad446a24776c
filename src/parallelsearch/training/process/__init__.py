"""The processes of a training job: how they start, what watches them, and how they end."""
