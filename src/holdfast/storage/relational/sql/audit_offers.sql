-- A read: all offers of external attempts, in the order of their attempts.
SELECT {raw_offer_columns}
FROM offers ORDER BY number, execution, activity, dimension, attempt, entry
