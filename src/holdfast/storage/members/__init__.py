"""Members of a group commit: guarded changes, and their outcomes. `member.Member` is the union of all members."""
