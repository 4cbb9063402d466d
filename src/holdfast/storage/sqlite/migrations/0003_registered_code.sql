-- The workflows and activities that a worker registered: `holdfast show` names what no live worker has.
-- oldest: 1

-- JSON lists of names; null: an older release registered the worker
ALTER TABLE workers ADD COLUMN workflows TEXT;
ALTER TABLE workers ADD COLUMN activities TEXT;
