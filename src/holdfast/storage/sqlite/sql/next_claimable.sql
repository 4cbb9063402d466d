-- A read: the next time after ?2 at which an instance of one of these workflows becomes claimable. One index lookup
-- for each workflow, however many instances of others wait. Claimable instances have no owner.
SELECT min(first) FROM (
    SELECT (
        SELECT claimable_at_ms FROM instances
        WHERE workflow = each.value AND claimable_at_ms > ?2
        ORDER BY claimable_at_ms LIMIT 1
    ) AS first
    FROM json_each(?1) AS each
)
