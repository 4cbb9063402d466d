-- A read: the size of the tables of a schema with their indexes.
SELECT COALESCE(sum(pg_total_relation_size(tables.oid)), 0)::bigint
FROM pg_class AS tables WHERE tables.relnamespace = ?1::text::regnamespace AND tables.relkind = 'r'
