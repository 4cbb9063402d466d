-- The server's clock, and the mark behind which the store's time never goes (W9).
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, now_ms FROM clock
