-- A read: when the next instance of one of these workflows has something to do after the time given. One look into the
-- index for each workflow, however many instances of others wait. What is claimable is unowned.
SELECT min((
    SELECT claimable_at_ms FROM instances
    WHERE workflow = each.value AND claimable_at_ms > ?2
    ORDER BY claimable_at_ms LIMIT 1
))
FROM json_each(?1) AS each(value)
