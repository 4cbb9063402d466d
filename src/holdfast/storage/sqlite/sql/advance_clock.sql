-- Under the write lock; never goes back (W9).
UPDATE clock SET now_ms = max(now_ms, ?) RETURNING now_ms
