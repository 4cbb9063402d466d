-- A read: any worker may close these children, and concurrent workers are safe (C1).
SELECT number, execution FROM closings LIMIT ?
