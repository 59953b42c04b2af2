"""Objects that belong to the process that made them, and raise an error when they are sent."""

from typing import Any, NoReturn

from sapwood.core.errors import DataValueError


class StaysHere:
    """Base of clusters and what is made from them: none of it can be pickled.

    Example:
        >>> import pickle
        >>> pickle.dumps(StaysHere())
        Traceback (most recent call last):
        sapwood.core.errors.DataValueError: a StaysHere cannot be sent to an agent. Hint: ...
    """

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DataValueError(
            f"a {type(self).__name__} cannot be sent to an agent",
            hint="a task cannot use the cluster that runs it: submit from the client, pass the "
            "future of one task as an argument of another, or use sapwood.here()",
        )
