"""``hf.Flow``: a workflow as a graph, loaded from YAML or built in Python."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Self

from holdfast.authoring.activity import AnyActivity
from holdfast.core.flow.definition import FlowDefinition
from holdfast.errors import FlowProblem
from holdfast.flows.builder import FlowBuilder
from holdfast.flows.language.checker import KnownNames, names_in_modules
from holdfast.flows.language.parser import LoadedFlow, load_file, load_text
from holdfast.flows.language.yaml_writer import write_yaml
from holdfast.flows.mermaid import draw_mermaid
from holdfast.flows.svg import draw_svg


class Flow(FlowBuilder):
    """A workflow as a graph of activities::

        flow = hf.Flow("greeting")
        start = flow.trigger("start", input={"name": "string"})
        greet = flow.run("greet", say_hello, after=start, input=[start.input.name])
        flow.output(greet.output)

    or ``hf.Flow.load("greeting.yaml")``. An engine runs it: ``hf.Engine(..., flows=[flow])``. When a flow
    is loaded, or a flow that was built is first used, one `FlowError` has all of its problems.
    """

    _loaded_from_text: LoadedFlow | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        modules: Iterable[ModuleType] = (),
        activities: Iterable[AnyActivity] = (),
    ) -> Self:
        """The flow in a YAML file. With `modules` or `activities`, their names and arguments are checked, too."""
        return cls._from(load_file(Path(path), _known(modules, activities)))

    @classmethod
    def parse(
        cls,
        text: str | bytes,
        *,
        name: str = "flow.yaml",
        modules: Iterable[ModuleType] = (),
        activities: Iterable[AnyActivity] = (),
    ) -> Self:
        """The flow in a string of YAML, or in bytes of UTF-8. `name` is the name of the text in messages."""
        return cls._from(load_text(text, name, _known(modules, activities)))

    @classmethod
    def _from(cls, loaded: LoadedFlow) -> Self:
        flow = cls(loaded.definition.name, loaded.definition.version)
        flow._loaded_from_text = loaded
        flow._in_use = True
        return flow

    @cached_property
    def _loaded(self) -> LoadedFlow:
        """The definition with its warnings. Afterwards nothing can be added."""
        if self._loaded_from_text is not None:
            return self._loaded_from_text
        definition, warnings = self._build()
        return LoadedFlow(definition, warnings, {})

    @property
    def definition(self) -> FlowDefinition:
        """The definition, checked."""
        return self._loaded.definition

    @property
    def warnings(self) -> tuple[FlowProblem, ...]:
        """Possible problems of a flow that can run."""
        return self._loaded.warnings

    def line_of(self, node_id: str, where: str = "") -> int:
        """The line of an activity, or of an expression of it such as ``when`` or ``input.speed``; 0 if it has none."""
        places = self._loaded.places
        return places.get((node_id, where)) or places.get((node_id, ""), 0)

    def to_yaml(self) -> str:
        """The flow as YAML, which loads as the same flow."""
        return write_yaml(self.definition)

    def to_svg(
        self,
        *,
        digits: Mapping[str, str] | None = None,
        children: Mapping[str, Sequence[str]] | None = None,
        key: str = "",
    ) -> str:
        """The flow as SVG, with the digits of an instance and the composite keys of its children if they are given."""
        return draw_svg(self.definition, digits=digits, children=children, key=key)

    def to_mermaid(self, *, digits: Mapping[str, str] | None = None) -> str:
        """The flow as a Mermaid flowchart."""
        return draw_mermaid(self.definition, digits=digits)


def _known(modules: Iterable[ModuleType], activities: Iterable[AnyActivity]) -> KnownNames | None:
    """The names of activities that a flow may run, or None if none were given."""
    in_modules = tuple(modules)
    single = tuple(activities)
    return names_in_modules(in_modules, single) if in_modules or single else None
