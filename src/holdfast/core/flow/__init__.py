"""Flows: workflows as graphs. `definition` is what a flow says; the collation key is in `core.collation`."""
