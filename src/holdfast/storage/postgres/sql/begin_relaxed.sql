-- The same for a store that does not wait for the disk: after a crash of the server its newest commits may be gone.
SELECT set_config('lock_timeout', ?1, true), set_config('idle_in_transaction_session_timeout', ?2, true),
    set_config('synchronous_commit', 'off', true)
