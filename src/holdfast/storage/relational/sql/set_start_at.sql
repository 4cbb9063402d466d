-- Follows the insert in the same transaction. The insert made the instance claimable at this time, and nothing makes it
-- claimable earlier (G15).
UPDATE instances SET start_at_ms = ? WHERE number = ?
