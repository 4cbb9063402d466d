-- The high-water mark of the store's clock.
SELECT now_ms FROM clock
