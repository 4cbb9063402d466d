"""Applies members inside a write transaction; one module per feature."""
