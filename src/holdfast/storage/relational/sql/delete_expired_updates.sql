-- Expired rejections of updates. Nothing else of updates expires.
DELETE FROM updates WHERE expires_at_ms <= ?
