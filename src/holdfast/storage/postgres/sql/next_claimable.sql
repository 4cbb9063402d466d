-- A read: the next time after ?2 at which an instance that this worker may run becomes claimable. One index lookup for
-- each key (R8), however many instances of others wait. Claimable instances have no owner.
SELECT min((
    SELECT claimable_at_ms FROM instances
    WHERE workflow = keys.workflow AND version = keys.version AND claimable_at_ms > ?2
    ORDER BY claimable_at_ms LIMIT 1
))
FROM ({claim_keys:?1}) AS keys
