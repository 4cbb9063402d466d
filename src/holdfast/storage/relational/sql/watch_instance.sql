-- The end of the instance changes the same row: either it finds the name here, or this statement finds no open row.
-- A long list is replaced: processes whose name is dropped poll, and most of its names are of processes that have ended.
UPDATE instances SET watchers = CASE
    WHEN watchers IS NULL OR length(watchers) > 1000 THEN CAST(?1 AS TEXT)
    WHEN (' ' || watchers || ' ') LIKE ('% ' || CAST(?1 AS TEXT) || ' %') THEN watchers
    ELSE watchers || ' ' || CAST(?1 AS TEXT)
END
WHERE number = ?2 AND closed_at_ms IS NULL
