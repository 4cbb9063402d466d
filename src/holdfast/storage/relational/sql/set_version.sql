-- Part of a guarded turn: the first turn of an execution chooses the version on which the instance runs (R6), and a turn
-- that continues on the newest one leaves the choice to the next execution (R7).
UPDATE instances SET version = ? WHERE number = ?
