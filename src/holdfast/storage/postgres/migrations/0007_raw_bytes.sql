-- Large results and events of type bytes are stored raw, and histories record events that were set aside (decision 31).
-- Releases before this one can read neither and would block the instances, so they may not open the store.
-- oldest: 7

COMMENT ON COLUMN payloads.data IS 'JSON, or raw bytes where the reference begins with bytes-';
