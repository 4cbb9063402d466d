-- Guarded by the fence. Blocking it again for the same reason is applied, too: the worker logs it, also if a reply
-- was lost. History and inbox stay, and only another build claims it (G12).
UPDATE instances SET state = 'BLOCKED', blocked = ?1, owner = NULL, claimable_at_ms = NULL,
    blocked_by = CASE
        WHEN EXISTS (SELECT 1 FROM json_each(blocked_by) WHERE value = ?2) THEN blocked_by
        ELSE json_insert(COALESCE(blocked_by, '[]'), '$[#]', ?2)
    END
WHERE number = ?3 AND fence = ?4
  AND ((owner = ?5 AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED')) OR (state = 'BLOCKED' AND blocked = ?1))
