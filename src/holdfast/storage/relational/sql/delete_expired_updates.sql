-- Rejections that their senders have read by now. Nothing else expires.
DELETE FROM updates WHERE expires_at_ms <= ?
