"""The one exception of the build: its text is what the user sees, without a traceback."""


class BuildError(Exception):
    """A build that cannot go on. The message says what is wrong and what to do about it."""
