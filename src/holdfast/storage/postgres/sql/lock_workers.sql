-- After the instances of a group that ends leases, and before all else: whose leases they are, and in whose name the group
-- acts. All lock them in the same order.
SELECT key FROM workers WHERE key = ANY (?1::text[]) ORDER BY key FOR UPDATE
