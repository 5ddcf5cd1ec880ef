-- Tables and functions of the PostgreSQL store, in the schema `pb`, which stands for the prefix of
-- the settings. `conversations` has one row for each, which a write locks first: so its guard is
-- exact. Times are milliseconds of the server's clock, but `owed_since`, `created` and `updated`
-- microseconds. Texts that a client may choose are bytes: a text of PostgreSQL has no NUL.

CREATE TABLE pb.layout (version int NOT NULL, ready bigint NOT NULL DEFAULT 0);

CREATE TABLE pb.conversations (
    tag text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,    -- a hash
    key bytea[] NOT NULL,               -- owner and id
    version bigint NOT NULL DEFAULT 0,
    writes text[] NOT NULL DEFAULT '{}',  -- ids of the last ones
    head bytea NOT NULL DEFAULT '',
    message_count bigint NOT NULL DEFAULT 0,
    starts bigint[] NOT NULL DEFAULT '{0}',  -- of the view's spans
    ends bigint[] NOT NULL DEFAULT '{NULL}',
    size bigint NOT NULL DEFAULT 0,     -- of the view, bytes
    lease_expires bigint,               -- NULL: there is no lease
    fence bytea NOT NULL DEFAULT '',    -- empty: nobody holds the lease
    seq bigint NOT NULL DEFAULT 0,      -- last event of the lease's log
    signal bytea NOT NULL DEFAULT '',
    due bigint,                         -- once there is no lease
    due_at bigint,                      -- when to look at it; a renewed lease may be over later
    owed_since bigint,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    keep_until bigint
) WITH (fillfactor = 70);  -- room on its page for the next version of a row
CREATE INDEX ON pb.conversations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ON pb.conversations (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX ON pb.conversations (owner, owed_since, tag) WHERE owed_since IS NOT NULL;
CREATE INDEX ON pb.conversations (owner, updated);
CREATE UNIQUE INDEX ON pb.conversations (updated);

CREATE TABLE pb.messages (tag text COLLATE "C", number bigint, record bytea NOT NULL,
    PRIMARY KEY (tag, number));
-- fields, receipts, the queue and run records, whose names begin with `f:`, `r:`, `q:` and `u:`
CREATE TABLE pb.records (tag text COLLATE "C", name bytea, record bytea NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (tag, name));
CREATE TABLE pb.logs (tag text COLLATE "C", run_id bytea, size bigint NOT NULL,  -- bytes
    keep_until bigint NOT NULL, PRIMARY KEY (tag, run_id)) WITH (fillfactor = 70);
CREATE INDEX ON pb.logs (keep_until);
CREATE TABLE pb.entries (tag text COLLATE "C", run_id bytea, epoch bigint, seq bigint,
    size bigint NOT NULL, record bytea NOT NULL, PRIMARY KEY (tag, run_id, epoch, seq));
CREATE TABLE pb.spent (owner text COLLATE "C", part bytea,  -- a day, or a lease
    amounts bigint[] NOT NULL, seq bigint NOT NULL, keep_until bigint NOT NULL,
    PRIMARY KEY (owner, part));
CREATE INDEX ON pb.spent (keep_until);

CREATE FUNCTION pb.microseconds() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE FUNCTION pb.milliseconds() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION pb.has_queue(of_tag text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pb.records WHERE tag = of_tag AND name >= 'q:' AND name < 'q;');
END $$;

-- Delete a conversation whose row is locked, or that nobody can read.
CREATE FUNCTION pb.remove(gone text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM pb.messages WHERE tag = gone;
    DELETE FROM pb.records WHERE tag = gone;
    DELETE FROM pb.logs WHERE tag = gone;
    DELETE FROM pb.entries WHERE tag = gone;
    DELETE FROM pb.conversations WHERE tag = gone;
$$;

-- Delete some conversations and logs that have expired; what somebody writes to is passed over.
CREATE FUNCTION pb.sweep() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    FOR gone IN SELECT tag FROM pb.conversations WHERE keep_until <= pb.milliseconds()
        ORDER BY keep_until LIMIT 20 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM pb.remove(gone.tag);
    END LOOP;
    FOR gone IN SELECT tag, run_id FROM pb.logs WHERE keep_until <= pb.milliseconds()
        ORDER BY keep_until LIMIT 20 FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM pb.logs WHERE tag = gone.tag AND run_id = gone.run_id;
        DELETE FROM pb.entries WHERE tag = gone.tag AND run_id = gone.run_id;
    END LOOP;
END $$;

-- Add an entry to a log, and remove the oldest ones that have no room any more.
CREATE FUNCTION pb.add_entry(entry pb.entries, keep bigint, room bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    total bigint;
    rest bigint;     -- bytes of the entry that the loop looks at, and of those behind it
    kept bigint;
    first pb.entries;  -- of those that are kept
    e record;
BEGIN
    INSERT INTO pb.entries SELECT entry.*;
    INSERT INTO pb.logs AS l VALUES (entry.tag, entry.run_id, octet_length(entry.record), keep)
        ON CONFLICT (tag, run_id) DO UPDATE SET size = l.size + excluded.size
        RETURNING size INTO total;
    IF total <= room THEN
        RETURN;
    END IF;
    rest := total;
    FOR e IN SELECT epoch, seq, size, octet_length(record) AS bytes FROM pb.entries
        WHERE tag = entry.tag AND run_id = entry.run_id ORDER BY epoch, seq
    LOOP
        -- where an epoch begins is no place to begin: readers would not see the gap
        IF rest < total AND e.seq <> e.size THEN
            first.epoch := e.epoch;
            first.seq := e.seq;
            kept := rest;
            EXIT WHEN rest <= room;
        END IF;
        rest := rest - e.bytes;
    END LOOP;
    IF kept IS NOT NULL THEN
        DELETE FROM pb.entries WHERE tag = entry.tag AND run_id = entry.run_id
            AND (epoch, seq) < (first.epoch, first.seq);
        UPDATE pb.logs SET size = kept WHERE tag = entry.tag AND run_id = entry.run_id;
    END IF;
END $$;

-- Change one log: its time, the entries that are void, and the one that is new.
CREATE FUNCTION pb.change_log(log_tag text, log_run bytea, keep bigint, void_epoch bigint,
    void_seq bigint, entry pb.entries, room bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM pb.logs WHERE tag = log_tag AND run_id = log_run
        AND keep_until <= pb.milliseconds();
    IF FOUND THEN
        DELETE FROM pb.entries WHERE tag = log_tag AND run_id = log_run;
    END IF;
    INSERT INTO pb.logs VALUES (log_tag, log_run, 0, keep)
        ON CONFLICT (tag, run_id) DO UPDATE SET keep_until = excluded.keep_until;
    IF void_epoch IS NOT NULL THEN
        DELETE FROM pb.entries WHERE tag = log_tag AND run_id = log_run
            AND (epoch, seq) > (void_epoch, void_seq);
        -- the last one that stays may have been trimmed away: readers see the gap by its number
        INSERT INTO pb.entries SELECT log_tag, log_run, void_epoch, void_seq, 0, '[]'
            WHERE NOT EXISTS (SELECT FROM pb.entries WHERE tag = log_tag AND run_id = log_run);
        UPDATE pb.logs SET size = (SELECT sum(octet_length(record)) FROM pb.entries
            WHERE tag = log_tag AND run_id = log_run) WHERE tag = log_tag AND run_id = log_run;
    END IF;
    IF entry.record IS NOT NULL AND NOT EXISTS (SELECT FROM pb.entries WHERE tag = log_tag
        AND run_id = log_run AND (epoch, seq) >= (entry.epoch, entry.seq))
    THEN
        PERFORM pb.add_entry(entry, keep, room);
    END IF;
END $$;

-- A `Write` of core/conversation/store.py. No row: its guard does not hold.
CREATE FUNCTION pb.write(
    tag text, owner text, key bytea[], id text, remembered int,
    guard_version bigint, guard_fence bytea, guard_lease_over boolean, guard_count bigint,
    first_version bigint, head bytea, names bytea[], records bytea[], messages bytea[],
    starts bigint[], ends bigint[], size bigint,
    lease text, signal bytea, owes boolean, touches boolean,
    idle_ttl bigint, busy_ttl bigint, idle_log_ttl bigint, busy_log_ttl bigint, room bigint,
    log_run bytea DEFAULT NULL, log_ends boolean DEFAULT NULL,
    void_epoch bigint DEFAULT NULL, void_seq bigint DEFAULT NULL,
    entry_epoch bigint DEFAULT NULL, entry_seq bigint DEFAULT NULL,
    entry_size bigint DEFAULT NULL, entry_record bytea DEFAULT NULL,
    lease_time bigint DEFAULT NULL, fence bytea DEFAULT NULL, lease_signal bytea DEFAULT NULL,
    sets_due boolean DEFAULT false, due bigint DEFAULT NULL, due_queued bigint DEFAULT NULL
) RETURNS TABLE (version bigint, now bigint, queued boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c pb.conversations;
    us bigint;
    -- with a lease that begins, its entry does not follow on that of another
    begins boolean := entry_seq IS NULL OR lease IS NOT DISTINCT FROM 'take';
BEGIN
    LOOP
        SELECT * INTO c FROM pb.conversations WHERE tag = write.tag FOR UPDATE;
        us := pb.microseconds();  -- only now: it may have waited for the row
        now := us / 1000;
        IF c.keep_until <= now THEN
            PERFORM pb.remove(c.tag);
            c := NULL;
        END IF;
        EXIT WHEN c.tag IS NOT NULL;
        IF guard_version IS DISTINCT FROM 0 THEN
            RETURN;
        END IF;
        INSERT INTO pb.conversations (tag, owner, key, created, updated)
            VALUES (write.tag, write.owner, write.key, us, us) ON CONFLICT DO NOTHING;
    END LOOP;

    IF id = ANY (c.writes) THEN
        RETURN QUERY SELECT c.version, write.now, pb.has_queue(c.tag);
        RETURN;
    END IF;
    IF NOT (
        c.version = coalesce(guard_version, c.version)
        AND c.message_count = coalesce(guard_count, c.message_count)
        AND (NOT guard_lease_over OR coalesce(c.lease_expires <= now, false))
        AND (guard_fence IS NULL OR (guard_fence = c.fence AND c.fence <> ''
            AND (begins OR entry_seq <= c.seq OR entry_seq - entry_size = c.seq)))
    ) THEN
        IF c.version = 0 THEN
            PERFORM pb.remove(c.tag);
        END IF;
        RETURN;
    END IF;

    c.version := CASE c.version WHEN 0 THEN first_version ELSE c.version + 1 END;
    c.writes := (id || c.writes)[:remembered];
    c.head := coalesce(write.head, c.head);
    DELETE FROM pb.records WHERE tag = c.tag AND name IN (SELECT r.name
        FROM unnest(write.names, write.records) AS r (name, record) WHERE r.record IS NULL);
    INSERT INTO pb.records (tag, name, record) SELECT c.tag, r.name, r.record
        FROM unnest(write.names, write.records) AS r (name, record) WHERE r.record IS NOT NULL
        ON CONFLICT (tag, name) DO UPDATE SET record = excluded.record;
    queued := pb.has_queue(c.tag);

    INSERT INTO pb.messages SELECT c.tag, c.message_count + m.i - 1, m.record
        FROM unnest(messages) WITH ORDINALITY AS m (record, i);
    IF write.starts IS NOT NULL THEN
        c.starts := write.starts;
        c.ends := write.ends;
        c.size := write.size;
    ELSIF cardinality(c.ends) > 0 AND c.ends[cardinality(c.ends)] IS NULL THEN
        c.size := c.size + (SELECT coalesce(sum(octet_length(m.record)), 0)
            FROM unnest(messages) WITH ORDINALITY AS m (record, i)
            WHERE c.message_count + m.i - 1 >= c.starts[cardinality(c.starts)]);
    END IF;
    c.message_count := c.message_count + cardinality(messages);
    IF c.size IS NULL THEN
        c.size := (SELECT coalesce(sum(octet_length(m.record)), 0)
            FROM unnest(c.starts, c.ends) AS s (first, stop)
            JOIN pb.messages AS m ON m.tag = c.tag AND m.number >= s.first
            AND m.number < coalesce(s.stop, c.message_count));
    END IF;

    IF log_run IS NOT NULL THEN
        PERFORM pb.change_log(c.tag, log_run,
            now + CASE WHEN log_ends THEN idle_log_ttl ELSE busy_log_ttl END,
            void_epoch, void_seq,
            CASE WHEN begins OR guard_fence IS NULL OR entry_seq > c.seq THEN
                (c.tag, log_run, entry_epoch, entry_seq, entry_size, entry_record)::pb.entries END,
            room);
    END IF;

    IF guard_fence IS NOT NULL THEN
        c.seq := greatest(c.seq, entry_seq);
    END IF;
    IF lease = 'take' THEN
        c.fence := write.fence;
        c.seq := coalesce(entry_seq, 0);
        c.signal := lease_signal;
        c.lease_expires := now + lease_time;
    ELSIF lease = 'end' THEN
        c.fence := '';
        c.lease_expires := NULL;
    ELSIF lease = 'release' AND c.lease_expires IS NOT NULL THEN
        c.fence := '';
        c.lease_expires := now;
    ELSIF lease = 'renew' AND c.fence <> '' THEN
        c.lease_expires := now + lease_time;
    END IF;
    c.signal := coalesce(write.signal, c.signal);

    IF sets_due THEN
        c.due := least(now + write.due, CASE WHEN queued THEN now + due_queued END);
    END IF;
    IF lease IS NOT NULL OR sets_due THEN
        c.due_at := coalesce(c.lease_expires, c.due);
    END IF;
    c.owed_since := CASE owes WHEN true THEN coalesce(c.owed_since, us) WHEN false THEN NULL
        ELSE c.owed_since END;
    IF touches THEN
        c.updated := greatest(us, 1 + (SELECT max(updated) FROM pb.conversations
            WHERE owner = c.owner AND tag <> c.tag));
    END IF;
    c.keep_until := now + CASE WHEN queued OR c.lease_expires IS NOT NULL THEN busy_ttl
        ELSE idle_ttl END;
    UPDATE pb.conversations SET version = c.version, writes = c.writes, head = c.head,
        message_count = c.message_count, starts = c.starts, ends = c.ends, size = c.size,
        lease_expires = c.lease_expires, fence = c.fence, seq = c.seq, signal = c.signal,
        due = c.due, due_at = c.due_at, owed_since = c.owed_since, updated = c.updated,
        keep_until = c.keep_until WHERE tag = c.tag;
    IF lease = 'take' THEN
        PERFORM pb.sweep();
    END IF;
    version := c.version;
    RETURN NEXT;
END $$;

-- Each `Append` of core/conversation/store.py, the entry of one without is NULL. One that fails
-- alone has the code of its error.
CREATE FUNCTION pb.append(
    tags text[], run_ids bytea[], fences bytea[], epochs bigint[], seqs bigint[], sizes bigint[],
    records bytea[], lease_time bigint, busy_ttl bigint, busy_log_ttl bigint, room bigint
) RETURNS TABLE (held boolean, signal bytea, error text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c pb.conversations;
    now bigint;
BEGIN
    -- all in one order, so that no two of these calls wait for each other
    PERFORM FROM pb.conversations WHERE tag = ANY (tags) ORDER BY tag FOR UPDATE;
    FOR i IN 1 .. cardinality(tags) LOOP
        BEGIN
            error := NULL;
            now := pb.milliseconds();
            SELECT * INTO c FROM pb.conversations
                WHERE tag = tags[i] AND (keep_until IS NULL OR keep_until > now);
            held := coalesce(c.fence = fences[i] AND c.fence <> '' AND (seqs[i] IS NULL
                OR seqs[i] <= c.seq OR seqs[i] - sizes[i] = c.seq), false);
            signal := CASE WHEN held THEN c.signal ELSE '' END;
            IF held THEN
                -- times that are indexed move rarely: then most entries touch no index of theirs
                UPDATE pb.conversations SET lease_expires = now + lease_time,
                    seq = greatest(seq, seqs[i]), due_at = least(due_at, now + lease_time),
                    keep_until = CASE WHEN keep_until < now + busy_ttl / 2 THEN now + busy_ttl
                    ELSE keep_until END WHERE tag = c.tag;
                IF seqs[i] > c.seq THEN
                    PERFORM pb.add_entry((c.tag, run_ids[i], epochs[i], seqs[i], sizes[i],
                        records[i]), now + busy_log_ttl, room);
                END IF;
                UPDATE pb.logs SET keep_until = now + busy_log_ttl WHERE tag = c.tag
                    AND run_id = run_ids[i] AND keep_until < now + busy_log_ttl / 2;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            held := false;
            error := SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END $$;

-- Keys of conversations that are due, which are due again after `pause`.
CREATE FUNCTION pb.take_due(most int, pause bigint) RETURNS SETOF bytea[] LANGUAGE plpgsql AS $$
DECLARE
    now bigint := pb.milliseconds();
BEGIN
    RETURN QUERY WITH seen AS MATERIALIZED (
        SELECT tag, key, due_at, CASE WHEN keep_until <= now THEN NULL
            ELSE coalesce(lease_expires, due) END AS at
        FROM pb.conversations WHERE due_at <= now FOR UPDATE SKIP LOCKED
    ), ranked AS (
        SELECT *, at <= now AND row_number() OVER (
            PARTITION BY at <= now ORDER BY due_at, tag) <= most AS taken FROM seen
    ), moved AS (
        -- a renewed lease did not move it
        UPDATE pb.conversations AS c SET due_at = CASE WHEN taken THEN now + pause ELSE at END
        FROM ranked AS r WHERE r.tag = c.tag AND (taken OR at > now OR at IS NULL)
    )
    SELECT key FROM ranked WHERE taken ORDER BY due_at, tag;
END $$;

-- Replace what was counted under a lease, if `seq` is newer; the total of its owner for the day.
CREATE FUNCTION pb.spend(owner text, day bytea, lease bytea, amounts bigint[], seq bigint,
    top bigint, ttl bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now bigint := pb.milliseconds();
    l pb.spent;
    d pb.spent;
BEGIN
    DELETE FROM pb.spent WHERE keep_until <= now AND owner = spend.owner AND part IN (day, lease);
    DELETE FROM pb.spent WHERE (owner, part) IN (SELECT owner, part FROM pb.spent
        WHERE keep_until <= now LIMIT 20 FOR UPDATE SKIP LOCKED);
    INSERT INTO pb.spent VALUES (spend.owner, lease, '{0,0,0}', 0, now + ttl),
        (spend.owner, day, '{0,0,0}', 0, now + ttl) ON CONFLICT DO NOTHING;
    SELECT * INTO l FROM pb.spent WHERE owner = spend.owner AND part = lease FOR UPDATE;
    SELECT * INTO d FROM pb.spent WHERE owner = spend.owner AND part = day FOR UPDATE;
    IF spend.seq > l.seq THEN
        UPDATE pb.spent SET amounts = spend.amounts, seq = spend.seq, keep_until = now + ttl
            WHERE owner = spend.owner AND part = lease;
        -- a total that is too large to be exact does not fall
        UPDATE pb.spent SET keep_until = now + ttl, amounts = ARRAY(
            SELECT CASE t WHEN top THEN t ELSE greatest(0, least(top, t + given - known)) END
            FROM unnest(d.amounts, spend.amounts, l.amounts) WITH ORDINALITY
            AS a (t, given, known, i) ORDER BY i)
            WHERE owner = spend.owner AND part = day RETURNING * INTO d;
    END IF;
    RETURN d.amounts;
END $$;

CREATE FUNCTION pb.delete(gone text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c pb.conversations;
BEGIN
    SELECT * INTO c FROM pb.conversations WHERE tag = gone FOR UPDATE;
    PERFORM pb.remove(c.tag);
    RETURN c.tag IS NOT NULL AND (c.keep_until IS NULL OR c.keep_until > pb.milliseconds());
END $$;
