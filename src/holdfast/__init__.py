"""Holdfast: durable execution for Python.

A workflow is an ordinary ``async`` function or a graph in YAML. It survives crashes, restarts, deploys and
dead machines, and every step is recorded exactly once.
"""

from holdfast._version import __version__
from holdfast.errors import HoldfastError

__all__ = ["HoldfastError", "__version__"]
