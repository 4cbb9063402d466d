-- In the transaction that closes the instance: updates that were never accepted are not answered.
DELETE FROM updates WHERE number = ? AND answer IS NULL AND state = 'asked'
