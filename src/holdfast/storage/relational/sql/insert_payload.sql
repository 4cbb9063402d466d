-- The same data has the same reference, so a second insert changes nothing.
INSERT INTO payloads (reference, number, data) VALUES (?, ?, ?) ON CONFLICT (number, reference) DO NOTHING
