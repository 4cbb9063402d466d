-- After the instances of a group that ends leases, and before everything else: the lost workers and the actors of
-- the group, in the order of their keys. Waits for groups of these workers, which share a lock on their rows; later
-- groups see the loss (W6).
SELECT key FROM workers WHERE key = ANY (?1::text[]) ORDER BY key FOR UPDATE
