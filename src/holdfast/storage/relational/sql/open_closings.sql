-- A read: anyone may go on with them, and two who do harm nothing (C1).
SELECT number, execution FROM closings LIMIT ?
