-- Keeps the mark behind which the store's time never goes (W9), where it is further behind than ?2: no row is written by
-- every group of every worker. Whoever finds that another one is at it leaves it to them.
UPDATE clock SET now_ms = ?1
WHERE ctid = ANY (ARRAY(SELECT ctid FROM clock WHERE now_ms < ?1::bigint - ?2::bigint FOR UPDATE SKIP LOCKED))
