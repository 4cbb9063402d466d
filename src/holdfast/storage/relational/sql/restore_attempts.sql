-- R22: READY attempts that were withheld since ?2 are available again at ?3, as in `core.pauses.available_after_ms`. Their
-- deadlines move by the length of the pause. One that was held because its retries were used up has a fresh budget.
UPDATE attempts SET failure = NULL, scheduled_at_ms = scheduled_at_ms + ?3 - ?2,
    expires_at_ms = expires_at_ms - 1152921504606846976 + ?3 - ?2,
    available_at_ms = CASE
        WHEN available_at_ms - 1152921504606846976 <= ?2 THEN available_at_ms - 1152921504606846976 + ?3 - ?2
        WHEN available_at_ms - 1152921504606846976 <= ?3 THEN ?3
        ELSE available_at_ms - 1152921504606846976
    END
WHERE number = ?1 AND (state || '') = 'READY' AND available_at_ms >= 1152921504606846976
