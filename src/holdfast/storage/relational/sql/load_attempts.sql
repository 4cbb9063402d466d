-- A read by the owner of several instances: every attempt of several executions. ?1 is a list of numbers and executions.
SELECT {attempt_columns:attempts} FROM json_each(?1) AS wanted
CROSS JOIN attempts ON attempts.number = json_extract(wanted.value, '$[0]') AND execution = json_extract(wanted.value, '$[1]')
ORDER BY attempts.number, attempts.activity, attempts.dimension, attempts.attempt
