-- Follows a turn that was guarded in the same transaction (G11).
UPDATE instances SET state = ?, outcome = ?, closed_at_ms = ?, owner = NULL, claimable_at_ms = NULL WHERE number = ?
