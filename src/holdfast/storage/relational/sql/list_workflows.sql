-- A read: the names of all workflows that have instances, one look into the index for each.
WITH RECURSIVE names(workflow) AS (
    SELECT min(workflow) FROM instances
    UNION ALL
    SELECT (SELECT min(workflow) FROM instances WHERE workflow > names.workflow) FROM names WHERE names.workflow IS NOT NULL
)
SELECT workflow FROM names WHERE workflow IS NOT NULL
