-- Inserts into the tables of the open contract notify the workers of the store. The payload is `requests:` with the name
-- of the workflow, or `activity_events:` with the name of the activity, so that only workers that have it look. Without a
-- colon and a name all workers look: for an event or a cancel, a name or id above 255 bytes, an unknown id, and a
-- statement with more than 20 names.
-- Where these triggers are missing, workers poll.
-- oldest: 8
-- optional

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The functions read `offers`, which a client may not, so they run with the rights of their owner. They only notify. The
-- channel is that of `address.py`.
CREATE FUNCTION notify_requests() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $function$
DECLARE
    _channel TEXT := 'holdfast_' || TG_TABLE_SCHEMA;
    _names TEXT[];
BEGIN
    _names := ARRAY(
        SELECT DISTINCT CASE WHEN kind = 'start' AND octet_length(workflow) BETWEEN 1 AND 255 THEN workflow END
        FROM inserted WHERE state = 'NEW' LIMIT 21
    );
    IF octet_length(_channel) > 63 THEN
        _channel := left(_channel, 46) || '_' || left(encode(sha256(convert_to(_channel, 'UTF8')), 'hex'), 16);
    END IF;
    IF cardinality(_names) > 20 OR array_position(_names, NULL) IS NOT NULL THEN
        PERFORM pg_notify(_channel, TG_TABLE_NAME);
    ELSE
        PERFORM pg_notify(_channel, TG_TABLE_NAME || ':' || name) FROM unnest(_names) AS name;
    END IF;
    RETURN NULL;
END $function$;

CREATE FUNCTION notify_activity_events() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $function$
DECLARE
    _channel TEXT := 'holdfast_' || TG_TABLE_SCHEMA;
    _names TEXT[];
BEGIN
    _names := ARRAY(
        SELECT DISTINCT CASE WHEN octet_length(offers.name) <= 255 THEN offers.name END
        FROM (
            SELECT DISTINCT CASE WHEN octet_length(activity_exec_id) <= 255 THEN activity_exec_id END AS exec_id
            FROM inserted WHERE state = 'NEW'
        ) AS given LEFT JOIN offers ON offers.exec_id = given.exec_id
        LIMIT 21
    );
    IF octet_length(_channel) > 63 THEN
        _channel := left(_channel, 46) || '_' || left(encode(sha256(convert_to(_channel, 'UTF8')), 'hex'), 16);
    END IF;
    IF cardinality(_names) > 20 OR array_position(_names, NULL) IS NOT NULL THEN
        PERFORM pg_notify(_channel, TG_TABLE_NAME);
    ELSE
        PERFORM pg_notify(_channel, TG_TABLE_NAME || ':' || name) FROM unnest(_names) AS name;
    END IF;
    RETURN NULL;
END $function$;

REVOKE ALL ON FUNCTION notify_requests() FROM PUBLIC;
REVOKE ALL ON FUNCTION notify_activity_events() FROM PUBLIC;

CREATE TRIGGER requests_notify AFTER INSERT ON requests
REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION notify_requests();

CREATE TRIGGER activity_events_notify AFTER INSERT ON activity_events
REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION notify_activity_events();
