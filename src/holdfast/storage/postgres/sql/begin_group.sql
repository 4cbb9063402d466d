-- For this transaction only: nobody waits long for a row that somebody else has, and whoever stops in the middle (a frozen
-- process, a cut cable) has its transaction ended by the server.
SELECT set_config('lock_timeout', ?1, true), set_config('idle_in_transaction_session_timeout', ?2, true)
