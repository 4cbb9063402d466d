"""The exception that ends a workflow's coroutines when the worker lets go of them.

An evicted workflow has not failed: it lives on in its history and is rebuilt by replay, here or elsewhere.
Its coroutines in this process are torn down, and nothing they do meanwhile may count.
"""


class Evicted(BaseException):
    """Raised in workflow code that is being torn down, and by every Holdfast call it makes from then on.

    It derives from BaseException, so that ``except Exception`` in a workflow does not swallow it. Plain
    Python in a ``finally`` block runs, once for each eviction; a durable step from there is impossible.
    """
