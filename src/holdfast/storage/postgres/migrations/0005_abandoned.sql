-- How many bodies a worker has abandoned that still run (A5), as of its last heartbeat: `holdfast workers` shows it.
-- oldest: 1

ALTER TABLE workers ADD COLUMN abandoned BIGINT NOT NULL DEFAULT 0;
