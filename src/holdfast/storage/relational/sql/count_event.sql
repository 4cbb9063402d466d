-- The number of kept events is a column, so that a full mailbox is found by one read. An awaited event (?1) makes an
-- unowned instance claimable at once; an owned one is woken by its owner (G5).
UPDATE instances SET mail = mail + 1, claimable_at_ms = CASE
    WHEN ?1 AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED') THEN 0 ELSE claimable_at_ms
END
WHERE number = ?2
