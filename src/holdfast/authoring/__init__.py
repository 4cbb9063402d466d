"""The public API of workflow and activity code: decorators, calls, options, and the registry of an engine."""
