-- For this transaction only: a bound on waits for row locks, and on the time that the transaction may be idle, so
-- that the server ends the transaction of a frozen process or a cut connection.
SELECT set_config('lock_timeout', ?1, true), set_config('idle_in_transaction_session_timeout', ?2, true)
