-- In the transaction that closes the instance: nobody will take what was never accepted.
DELETE FROM updates WHERE number = ? AND answer IS NULL AND state = 'asked'
