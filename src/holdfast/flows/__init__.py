"""How flows are written: YAML and the builder, expressions in CEL, the checker, drawings.

What comes out is a `core.flow.definition.FlowDefinition`; the runtime needs nothing else but the expressions in it.
"""
