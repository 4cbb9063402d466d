"""The optimistic transaction: writes a group in one round trip, assuming that every guard holds."""
