-- Keeps the mark behind which the store's time never goes (W9), where it is further behind than ?2: no row is written by
-- every group of every worker.
UPDATE clock SET now_ms = ?1 WHERE now_ms < ?1 - ?2
