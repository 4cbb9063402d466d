"""The libraries for YAML and CEL, which the extra ``holdfast[flows]`` installs. They are imported with the first flow.

Most programs have no flows, and the CEL library alone is larger than all other dependencies of Holdfast.
"""

from importlib import import_module
from typing import Any, Final

from holdfast.errors import FlowError

INSTALL: Final = "pip install 'holdfast[flows]'"


class Library:
    """A module that is imported when one of its names is first used. Names are kept, so later uses cost nothing."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # read by inspection, not by code that needs the library
            raise AttributeError(name)
        try:
            module = import_module(self._module)
        except ImportError as error:
            raise FlowError(f"flows need two more libraries: {INSTALL} ({error})") from error
        value = getattr(module, name)
        setattr(self, name, value)
        return value


yaml: Final[Any] = Library("yaml")
cel: Final[Any] = Library("cel_expr_python.cel")  # it has no types that a checker could read


def require_libraries() -> None:
    """Raise a `FlowError` if one of them is missing: before a flow exists, not during its run."""
    _ = yaml.CBaseLoader, cel.NewEnv
