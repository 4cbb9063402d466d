"""Members: one guarded change each, written together in a group commit."""
