"""Failures a user can act on: one class a kind, one sentence each (what was found, where, what to do next)."""

from parallelsearch.secret import without_secrets
from parallelsearch.visible import visible


class UserError(Exception):
    """Base of every failure that is shown to the user as one sentence; its traceback goes to the log only.

    The sentence may quote a file, a model or a server: control characters in it are written out, secrets left out.
    """

    def __str__(self) -> str:
        return visible(without_secrets(super().__str__()))

    exit_code = 1


class ConfigError(UserError):
    """A configuration value that is unknown, of the wrong type or inconsistent with another."""


class DataError(UserError):
    """A raw or intermediate file that is broken, truncated or not of the expected layout."""


class MismatchError(UserError):
    """Two artefacts that do not belong together (index of another corpus, encoder or dimension, changed config)."""


class RetrieverError(UserError):
    """The retriever did not answer, or not with a valid reply."""


class RetrieverRefused(RetrieverError):
    """The request itself is at fault: sent again it would be refused again."""


class RetrieverOverloaded(RetrieverError):
    """The retriever has more to do than it may queue, or no index yet: the same request may succeed later.

    `retry_after`: seconds after which it wants to be asked again.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RetrieverUnreachable(RetrieverError):
    """No connection to the retriever, or none that lasted until the reply."""


class RetrieverTimeout(RetrieverError):
    """The retriever did not answer in time."""


class EngineError(UserError):
    """The text-generation engine failed to produce a reply."""


class EngineRefused(EngineError):
    """The request itself is at fault: sent again it would be refused again."""


class TrainingError(UserError):
    """A training job that failed, diverged or cannot go on from what it found."""


class StoppedEarly(TrainingError):
    """A training job that was asked to end, and did so in order: the same command goes on where it stopped."""

    exit_code = 75  # EX_TEMPFAIL: try again


class RunInUseError(TrainingError):
    """The folder of a run that another job or process is writing to."""


class ResourceError(UserError):
    """Memory, GPU memory or disk that is smaller than what a job needs; found before it starts, or on the way."""
