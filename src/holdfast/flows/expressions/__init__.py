"""CEL expressions of flows: compiled, bounded, and filled into JSON templates."""
