-- Nobody asks for the outcome of a commit that long ago.
DELETE FROM commits WHERE at_ms < ?
