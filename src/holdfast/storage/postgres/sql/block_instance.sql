-- Guarded by the fence. Blocking it again for the same reason is applied, too: the worker logs it, also if a reply
-- was lost. History and inbox stay, and only another build claims it (G12).
UPDATE instances SET state = 'BLOCKED', blocked = ?1, owner = NULL, claimable_at_ms = NULL,
    blocked_by = CASE
        WHEN COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array(?2::text) THEN blocked_by
        ELSE (COALESCE(blocked_by, '[]')::jsonb || jsonb_build_array(?2::text))::text
    END
WHERE number = ?3 AND fence = ?4
  AND ((owner = ?5 AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED')) OR (state = 'BLOCKED' AND blocked = ?1))
