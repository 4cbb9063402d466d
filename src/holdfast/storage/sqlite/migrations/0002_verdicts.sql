-- The verdict on the loss of a worker: set by the process that ends its lease, and used for all rows that it owned (G12).
-- oldest: 1

-- clean, explained or unexplained; null: it is active, or an older release has ended its lease
ALTER TABLE workers ADD COLUMN loss TEXT;
