-- The verdict on the loss of a worker, made by the worker that ended its lease and used by all that release its rows (G12).
-- oldest: 1

-- clean, explained or unexplained; null: it is active, or an older release has ended its lease
ALTER TABLE workers ADD COLUMN loss TEXT;
