-- A read: how many instances an audit goes through.
SELECT count(*) FROM instances
