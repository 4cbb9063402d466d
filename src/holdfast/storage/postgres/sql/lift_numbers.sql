-- A sequence is not transactional: a group that is rolled back lifts it, too, which does no harm (R2).
SELECT setval('instance_numbers', nextval('instance_numbers') + ?::bigint)
