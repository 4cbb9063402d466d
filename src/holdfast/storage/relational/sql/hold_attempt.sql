-- R26: the attempt is withheld because the retries before it are used up. Its failure is that of the one before.
UPDATE attempts SET failure = ?
WHERE number = ? AND execution = ? AND activity = ? AND dimension = ? AND attempt = ? AND +state = 'READY'
