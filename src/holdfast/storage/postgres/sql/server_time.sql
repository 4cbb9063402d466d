-- The server's clock, or the mark if that has gone back (W9).
SELECT greatest(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, now_ms), now_ms FROM clock
