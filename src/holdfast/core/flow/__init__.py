"""Flows: workflows as graphs.

`definition` is what a flow says, as plain data; `outcomes` what can become of an activity, an edge, a flow; `progress`
decides which activities start and which are skipped. The collation key itself is in `core.collation`.
"""
