-- A read by the owner of several instances: rows of committed turns never change. ?1 is a list of numbers and executions.
SELECT history.number, turn, events FROM json_each(?1) AS wanted
CROSS JOIN history ON history.number = json_extract(wanted.value, '$[0]') AND execution = json_extract(wanted.value, '$[1]')
ORDER BY history.number, history.turn
