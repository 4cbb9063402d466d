-- Sent with the commit, once for a group: the receivers poll the store.
SELECT pg_notify(?1, ?2)
