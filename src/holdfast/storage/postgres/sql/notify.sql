-- With the commit and once for a group: others look, and what there is to see is there.
SELECT pg_notify(?1, ?2)
