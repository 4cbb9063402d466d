-- Numbers for instances that are about to be started.
SELECT nextval('instance_numbers') FROM generate_series(1, ?1::int)
