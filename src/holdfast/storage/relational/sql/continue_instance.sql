-- Follows a turn that was guarded in the same transaction (G11). The fence grows, so that turns of the old execution are
-- rejected (G1, G4).
UPDATE instances SET execution = ?, turn = 0, fence = fence + 1, input = ?, owner = ?, claimable_at_ms = ?
WHERE number = ? AND execution = ?
