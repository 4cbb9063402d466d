"""Flows: YAML and the builder, expressions in CEL, the checker, drawings, and the run of a flow.

A flow is loaded or built into a `core.flow.definition.FlowDefinition`, compiled (`compiled_flow`), and run (`run`).
"""
