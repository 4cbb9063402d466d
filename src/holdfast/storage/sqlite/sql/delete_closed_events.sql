-- Events of attempts whose instance closed before ?3, of a range of offers. A batch.
DELETE FROM activity_events WHERE row IN (
    SELECT activity_events.row FROM offers
    JOIN instances ON instances.number = offers.number
    JOIN activity_events ON activity_events.activity_exec_id = offers.exec_id
    WHERE offers.exec_id > ?1 AND offers.exec_id <= ?2 AND instances.closed_at_ms < ?3
      AND activity_events.inserted_at_ms < ?3
    LIMIT ?4
)
