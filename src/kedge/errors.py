"""The exceptions kedge raises on purpose; anything else that escapes is a bug."""


class KedgeError(Exception):
    """Base of every error kedge raises on purpose."""


class InputError(KedgeError, ValueError):
    """An argument or a file breaks a rule; the message names it, the rule, what came and what to do."""


class NotFittedError(KedgeError, AttributeError):
    """A learned attribute was asked for before `fit`."""


class MissingExtraError(KedgeError, ImportError):
    """A format or feature needs an optional dependency that is not installed."""
