-- The reads of the PostgreSQL store, each one statement, and others that are none of its functions.
-- `read`, `owing`, `all` and `stored` have `found` before them, which reads all records if it is
-- given no names.

-- settings
SELECT current_setting('server_version_num')::int / 10000 AS version,
    current_setting('transaction_read_only')::bool AS read_only,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit

-- mark
INSERT INTO pb.layout VALUES ($1)

-- layout
SELECT version FROM pb.layout

-- ready
UPDATE pb.layout SET ready = pb.milliseconds()

-- notify
SELECT pg_notify($1, tag) FROM unnest($2::text[]) AS t (tag)

-- found
SELECT c.*, now, CASE WHEN $1::bytea[] IS NULL THEN ARRAY(
        SELECT name FROM pb.records AS r WHERE r.tag = c.tag AND (name < 'q:' OR name >= 'q;')
        ORDER BY name) END AS names,
    CASE WHEN $1::bytea[] IS NULL THEN ARRAY(
        SELECT record FROM pb.records AS r WHERE r.tag = c.tag AND (name < 'q:' OR name >= 'q;')
        ORDER BY name)
    ELSE ARRAY(
        SELECT (SELECT record FROM pb.records AS r WHERE r.tag = c.tag AND r.name = n.name)
        FROM unnest($1::bytea[]) WITH ORDINALITY AS n (name, i) ORDER BY i) END AS records,
    ARRAY(SELECT name FROM pb.records AS q WHERE q.tag = c.tag AND name >= 'q:' AND name < 'q;'
        ORDER BY place) AS queued,
    ARRAY(SELECT CASE WHEN $2 THEN record ELSE '' END FROM pb.records AS q WHERE q.tag = c.tag
        AND name >= 'q:' AND name < 'q;' ORDER BY place) AS queue,
    CASE WHEN c.size <= $3::float8 THEN ARRAY(
        SELECT m.record FROM unnest(c.starts, c.ends) WITH ORDINALITY AS s (first, stop, i)
        CROSS JOIN LATERAL (  -- one span after the other, whatever the planner knows of them
            SELECT number, record FROM pb.messages AS m WHERE m.tag = c.tag AND number >= s.first
            AND number < coalesce(s.stop, c.message_count) ORDER BY number OFFSET 0
        ) AS m ORDER BY i, number) END AS messages

-- read
FROM (SELECT pb.milliseconds() AS now) AS t LEFT JOIN pb.conversations AS c
ON c.tag = $4 AND (c.keep_until IS NULL OR c.keep_until > now)

-- owing
FROM (
    SELECT pb.milliseconds() AS now, owed_since AS time, * FROM pb.conversations WHERE owner = $4
    AND (owed_since, tag) > ($5, $6) AND (keep_until IS NULL OR keep_until > pb.milliseconds())
    ORDER BY owed_since, tag LIMIT $7
) AS c ORDER BY owed_since, tag

-- all
FROM (
    SELECT pb.milliseconds() AS now, updated AS time, * FROM pb.conversations WHERE owner = $4
    AND (updated, tag) < ($5, $6) AND (keep_until IS NULL OR keep_until > pb.milliseconds())
    ORDER BY updated DESC, tag DESC LIMIT $7
) AS c ORDER BY updated DESC, tag DESC

-- stored
FROM (
    SELECT pb.milliseconds() AS now, 0::bigint AS time, * FROM pb.conversations WHERE tag > $4
    AND (keep_until IS NULL OR keep_until > pb.milliseconds()) ORDER BY tag LIMIT $5
) AS c ORDER BY tag

-- log
WITH live AS (
    SELECT l.* FROM pb.conversations AS c JOIN pb.logs AS l USING (tag) WHERE c.tag = $1
    AND pb.milliseconds() < least(c.keep_until, l.keep_until)
), wanted AS (
    (SELECT * FROM live WHERE run_id = $2)
    UNION ALL
    (SELECT live.* FROM live CROSS JOIN LATERAL (
        SELECT epoch, seq FROM pb.entries AS e WHERE $2 IS NULL AND e.tag = live.tag
        AND e.run_id = live.run_id AND (epoch, seq) > ($3, $4) ORDER BY epoch, seq LIMIT 1
    ) AS first ORDER BY epoch, seq LIMIT 1)
)
SELECT wanted.run_id, e.* FROM wanted LEFT JOIN LATERAL (
    SELECT epoch, seq, size, record,
        row_number() OVER places AS place, sum(octet_length(record)) OVER places AS total,
        count(*) OVER () AS ahead
    FROM (SELECT * FROM pb.entries WHERE tag = wanted.tag AND run_id = wanted.run_id
        AND (epoch, seq) > ($3, $4) ORDER BY epoch, seq LIMIT $5) AS next
    WINDOW places AS (ORDER BY epoch, seq)
) AS e ON place = 1 OR total <= $6 ORDER BY epoch, seq

-- page
SELECT i, number, record FROM (
    SELECT i, number, record, row_number() OVER places AS place,
        sum(octet_length(record)) OVER places AS total
    FROM pb.conversations AS c
    CROSS JOIN unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS s (first, stop, i)
    CROSS JOIN LATERAL (
        SELECT number, record FROM pb.messages AS m WHERE m.tag = c.tag AND number >= s.first
        AND number < least(s.stop, s.first + $4) ORDER BY number OFFSET 0
    ) AS m
    WHERE c.tag = $1 AND (c.keep_until IS NULL OR c.keep_until > pb.milliseconds())
    WINDOW places AS (ORDER BY i, number)
) AS p WHERE place <= $4 AND (place = 1 OR total <= $5) ORDER BY place
