-- After the instances of a group that ends leases, and before all else: whose leases they are, and in whose name the group
-- acts. All lock them in the same order. Waits for groups of these workers, which hold a share of their rows; those that come
-- later see who is lost (W6).
SELECT key FROM workers WHERE key = ANY (?1::text[]) ORDER BY key FOR UPDATE
