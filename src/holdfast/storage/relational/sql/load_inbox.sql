-- A read by the owner of several instances: no other worker consumes these rows. ?1 is a list of numbers and executions.
SELECT {inbox_columns:inbox} FROM json_each(?1) AS wanted
CROSS JOIN inbox ON inbox.number = json_extract(wanted.value, '$[0]')
ORDER BY inbox.number, inbox.row
