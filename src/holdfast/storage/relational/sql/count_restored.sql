-- A read: what a restore changes, for its dry run (R2).
SELECT
    (SELECT count(*) FROM instances WHERE closed_at_ms IS NULL),
    (
        SELECT count(*) FROM offers JOIN attempts ON attempts.number = offers.number
            AND attempts.execution = offers.execution AND attempts.activity = offers.activity
            AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt
        WHERE offers.withdrawn_at_ms IS NULL AND attempts.closed_at_ms IS NULL
    )
