-- Raises the high-water mark of the store's clock (W9), but only if it lags by more than ?2, so that not every group of
-- every worker writes the row. A row that another process is updating is skipped.
UPDATE clock SET now_ms = ?1
WHERE ctid = ANY (ARRAY(SELECT ctid FROM clock WHERE now_ms < ?1::bigint - ?2::bigint FOR UPDATE SKIP LOCKED))
