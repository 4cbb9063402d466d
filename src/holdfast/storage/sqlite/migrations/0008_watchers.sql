-- The processes that wait for the end of an instance, by name: the commit that ends it wakes them, and no others
-- (decision 46). It is in no index, so that most updates of it move no other row.
-- Releases before this one do not wake them: a process that waits then finds the end at its next poll.
-- oldest: 6

ALTER TABLE instances ADD COLUMN watchers TEXT;
