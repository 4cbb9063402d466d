-- R21: claims do not find the READY attempts of a PAUSED instance, and their deadlines do not pass. 2^60 is
-- `core.pauses.WITHHELD_MS`. One statement for all: the instance is locked, so that no other attempt becomes READY.
UPDATE attempts SET available_at_ms = available_at_ms + 1152921504606846976, expires_at_ms = expires_at_ms + 1152921504606846976
WHERE number = ? AND (state || '') = 'READY' AND available_at_ms < 1152921504606846976
