-- Counted where events are kept, so that a full mailbox is seen at a glance.
UPDATE instances SET mail = mail + 1 WHERE number = ?
