-- Pauses of instances (R20): since when, why, and the state to which the instance returns. While an instance is PAUSED,
-- the times of its READY attempts are moved by 2^60 ms. An older release would let turns and retries of it go on, so it
-- no longer opens the store.
-- oldest: 11

ALTER TABLE instances ADD COLUMN paused_at_ms INTEGER;
ALTER TABLE instances ADD COLUMN paused_from TEXT;
ALTER TABLE instances ADD COLUMN pause_reason TEXT;
