-- The claim of a launcher, behind the lock of the offer: reports without it are refused from now on (A2).
UPDATE offers SET claim = ? WHERE exec_id = ?
