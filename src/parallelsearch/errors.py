"""Failures a user can act on: one class a kind, one sentence each (what was found, where, what to do next)."""


class UserError(Exception):
    """Base of every failure that is shown to the user as one sentence; its traceback goes to the log only."""


class ConfigError(UserError):
    """A configuration value that is unknown, of the wrong type or inconsistent with another."""


class DataError(UserError):
    """A raw or intermediate file that is broken, truncated or not of the expected layout."""


class MismatchError(UserError):
    """Two artefacts that do not belong together (index of another corpus, encoder or dimension, changed config)."""


class RetrieverError(UserError):
    """The retriever did not answer, or not with a valid reply."""


class EngineError(UserError):
    """The text-generation engine failed to produce a reply."""


class TrainingError(UserError):
    """A training job that failed, diverged or cannot go on from what it found."""


class ResourceError(UserError):
    """Memory, GPU memory or disk that is smaller than what a job will need; raised before the job starts."""
