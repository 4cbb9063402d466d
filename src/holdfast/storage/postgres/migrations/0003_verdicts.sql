-- What was judged of the loss of a worker: by whoever ended its lease, and for everybody who moves on what it had (G12).
-- oldest: 1

-- clean, explained or unexplained; null: it is active, or an older release has ended its lease
ALTER TABLE workers ADD COLUMN loss TEXT COLLATE "C";
