-- Guarded by the fence. A second try of the same one is applied, too: whoever blocks it logs it, also if a reply was lost. Parked: history and inbox stay, nobody claims it but another build (G12).
UPDATE instances SET state = 'BLOCKED', blocked = ?1, owner = NULL, claimable_at_ms = NULL,
    blocked_by = CASE
        WHEN EXISTS (SELECT 1 FROM json_each(blocked_by) WHERE value = ?2) THEN blocked_by
        ELSE json_insert(COALESCE(blocked_by, '[]'), '$[#]', ?2)
    END
WHERE number = ?3 AND fence = ?4
  AND ((owner = ?5 AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED')) OR (state = 'BLOCKED' AND blocked = ?1))
