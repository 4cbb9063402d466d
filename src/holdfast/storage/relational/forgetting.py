"""What is kept for a while only, for those who may still ask for it. Any worker removes it, a piece at a time (C1)."""

from typing import Final

COMMITS_KEPT_MS: Final = 3_600_000
"""How long the ids of commits are kept for those who do not know whether theirs went through."""
TOMBSTONES_KEPT_MS: Final = 24 * 3_600_000
"""W5: how long the key of a dead worker is remembered, so that it is never revived."""
