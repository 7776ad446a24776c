"""Train and evaluate language-model agents that search for independent parts of a question in parallel."""

__version__ = "0.1.0"
