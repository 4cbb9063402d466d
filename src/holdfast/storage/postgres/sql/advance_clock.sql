-- Advances the mark behind which the store's time never goes (W9) if it lags by more than ?2, so that not every group of
-- every worker writes the row. Does nothing while another session locks the row.
UPDATE clock SET now_ms = ?1
WHERE ctid = ANY (ARRAY(SELECT ctid FROM clock WHERE now_ms < ?1::bigint - ?2::bigint FOR UPDATE SKIP LOCKED))
