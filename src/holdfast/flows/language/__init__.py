"""The language of flows: from YAML to a checked definition, and back."""
