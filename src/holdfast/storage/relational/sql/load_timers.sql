-- A read by the owner of several instances: timers change only in turns of the owner. ?1 is a list of numbers and executions.
SELECT timers.number, timer, due_at_ms FROM json_each(?1) AS wanted
CROSS JOIN timers ON timers.number = json_extract(wanted.value, '$[0]') AND execution = json_extract(wanted.value, '$[1]')
ORDER BY timers.number, timers.timer
