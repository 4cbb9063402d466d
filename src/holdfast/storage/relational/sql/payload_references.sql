-- Read inside the write transaction: the references of the large payloads of an instance.
SELECT reference FROM payloads WHERE number = ?
