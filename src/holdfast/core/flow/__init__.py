"""Flows: workflows as graphs.

`definition` is a flow as plain data, `graph` its nodes and edges. `scheduler` decides which nodes start and which are
skipped, `state` adds up a history, `snapshot` is the view of it for readers. The collation key is in `core.collation`.
"""
