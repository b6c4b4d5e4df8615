"""The SQL of the steps of the schema; `{schema}` stands for its quoted name.

Functions find everything by their fixed search_path: their bodies do not name the schema, whose name may
hold any characters. All times are of `instant()`, the clock of the database, so that clocks of other machines
do not matter; tests put another function in its place.
"""

from __future__ import annotations

from typing import Final

# Rows of the outbox change a few times in a moment: pages have room for that, and are cleaned up early.
_TABLES: Final = """\
CREATE FUNCTION {schema}.instant() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT pg_catalog.statement_timestamp()';

CREATE TABLE {schema}.outbox (
    id uuid PRIMARY KEY,
    queue text NOT NULL,
    name text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    claimed_until timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'parked')),
    reason text NOT NULL DEFAULT '',
    dispatched_at timestamptz,
    sink_ref text NOT NULL DEFAULT '',
    verdict_at timestamptz
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN {schema}.outbox.payload IS 'The body that is sent, as text: {"id", "name", "payload"}';
CREATE INDEX outbox_due ON {schema}.outbox (queue, due_at) WHERE state = 'pending';
CREATE INDEX outbox_parked ON {schema}.outbox (created_at) WHERE state = 'parked';
CREATE INDEX outbox_open ON {schema}.outbox (dispatched_at) WHERE state = 'dispatched' AND verdict_at IS NULL;
CREATE INDEX outbox_settled ON {schema}.outbox (verdict_at) WHERE verdict_at IS NOT NULL;

CREATE TABLE {schema}.outbox_effects (
    outbox_id uuid NOT NULL,
    kind text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (outbox_id, kind)
);
CREATE INDEX outbox_effects_at ON {schema}.outbox_effects (at);

CREATE TABLE {schema}.generation_sessions (
    id uuid PRIMARY KEY,
    principal text NOT NULL,
    user_id text,
    name text NOT NULL,
    request jsonb NOT NULL,
    outputs integer,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'failed')),
    code text NOT NULL DEFAULT '',
    error text NOT NULL DEFAULT '',
    result jsonb,
    attempts integer NOT NULL DEFAULT 0,
    first_error text NOT NULL DEFAULT '',
    last_error text NOT NULL DEFAULT '',
    lost_after timestamptz,
    created_at timestamptz NOT NULL,
    sent_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    version bigint NOT NULL DEFAULT 1
);
CREATE INDEX generation_sessions_principal ON {schema}.generation_sessions (principal, created_at);
CREATE INDEX generation_sessions_changed ON {schema}.generation_sessions
    (principal, greatest(created_at, started_at, finished_at));
CREATE INDEX generation_sessions_finished ON {schema}.generation_sessions (finished_at)
    WHERE finished_at IS NOT NULL;
COMMENT ON COLUMN {schema}.generation_sessions.lost_after IS
    'Set with the last allowed try: without a verdict by then, nobody works on it any more';
CREATE INDEX generation_sessions_lost ON {schema}.generation_sessions (lost_after)
    WHERE lost_after IS NOT NULL;

CREATE TABLE {schema}.images (
    session_id uuid NOT NULL REFERENCES {schema}.generation_sessions (id) ON DELETE CASCADE,
    position integer NOT NULL,
    place text NOT NULL,
    content_type text NOT NULL,
    bytes bigint NOT NULL,
    sha256 bytea NOT NULL,
    PRIMARY KEY (session_id, position)
);

CREATE TABLE {schema}.app_settings (
    name text PRIMARY KEY,
    value jsonb NOT NULL,
    by text NOT NULL,
    at timestamptz NOT NULL
);
CREATE TABLE {schema}.app_settings_history (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    old_value jsonb,
    new_value jsonb,
    by text NOT NULL,
    at timestamptz NOT NULL
);

CREATE TABLE {schema}.outbox_relays (
    relay_id text PRIMARY KEY,
    waiting_until timestamptz NOT NULL
);
"""

# Callers of the first function are checked; the two others call it with the search_path that they fix.
_FUNCTIONS: Final = """\
CREATE FUNCTION {schema}.write_outbox(
    p_principal text, p_name text, p_payload jsonb, p_queue text, p_delay_seconds integer, p_id uuid
) RETURNS uuid LANGUAGE plpgsql AS $airunner$
DECLARE
    v_now timestamptz := instant();
    v_body jsonb := jsonb_build_object('id', p_id, 'name', p_name, 'payload', p_payload);
    v_known boolean;
BEGIN
    IF p_id IS NULL OR p_payload IS NULL OR p_principal IS NULL THEN
        RAISE EXCEPTION 'payload, principal and request_id must not be null' USING ERRCODE = '22004';
    END IF;
    IF p_name IS NULL OR length(p_name) NOT BETWEEN 1 AND 128 OR p_name <> btrim(p_name) THEN
        RAISE EXCEPTION 'name must have 1 to 128 characters, without spaces around them'
            USING ERRCODE = '22023';
    END IF;
    IF p_queue IS NULL OR p_queue !~ '^[A-Za-z0-9_-]{1,80}$' THEN
        RAISE EXCEPTION 'queue must be 1 to 80 letters, digits, - and _' USING ERRCODE = '22023';
    END IF;
    IF p_delay_seconds IS NULL OR p_delay_seconds NOT BETWEEN 0 AND 2592000 THEN
        RAISE EXCEPTION 'delay_seconds must be from 0 to 2592000' USING ERRCODE = '22023';
    END IF;
    IF octet_length(p_payload::text) > 921600 THEN
        RAISE EXCEPTION 'payload must have at most 900 KiB' USING ERRCODE = '22023';
    END IF;

    IF p_queue = 'generation' THEN
        INSERT INTO generation_sessions (id, principal, user_id, name, request, outputs, created_at)
        VALUES (p_id, p_principal, p_payload ->> 'user_id', p_name, p_payload,
            CASE WHEN jsonb_typeof(p_payload -> 'outputs') = 'number'
                AND (p_payload ->> 'outputs')::numeric BETWEEN 0 AND 1000000
                THEN trunc((p_payload ->> 'outputs')::numeric)::integer END,
            v_now)
        ON CONFLICT (id) DO NOTHING;
        IF NOT FOUND THEN
            SELECT principal = p_principal AND name = p_name AND request = p_payload
            INTO v_known FROM generation_sessions WHERE id = p_id;
            IF v_known THEN
                RETURN p_id;
            END IF;
            RAISE EXCEPTION 'request_id % was used with other content', p_id USING ERRCODE = '23505';
        END IF;
        -- The ledger may outlive the session: what has had its effect would never be run.
        IF EXISTS (SELECT FROM outbox_effects WHERE outbox_id = p_id) THEN
            RAISE EXCEPTION 'request_id % was used before', p_id USING ERRCODE = '23505';
        END IF;
    END IF;

    INSERT INTO outbox (id, queue, name, payload, created_at, due_at)
    VALUES (p_id, p_queue, p_name, v_body, v_now, v_now + make_interval(secs => p_delay_seconds))
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        SELECT queue = p_queue AND payload = v_body INTO v_known FROM outbox WHERE id = p_id;
        IF v_known THEN
            RETURN p_id;
        END IF;
        RAISE EXCEPTION 'request_id % was used with other content', p_id USING ERRCODE = '23505';
    END IF;

    -- NOTIFY takes a lock of the whole database at commit: not while every relay is busy anyway.
    IF p_delay_seconds = 0 AND EXISTS (SELECT FROM outbox_relays WHERE waiting_until > v_now) THEN
        PERFORM pg_notify('airunner_outbox', '');
    END IF;
    RETURN p_id;
END
$airunner$;

CREATE FUNCTION {schema}.enqueue(
    name text, payload jsonb, queue text DEFAULT 'generation', delay_seconds integer DEFAULT 0,
    request_id uuid DEFAULT gen_random_uuid()
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $airunner$
BEGIN
    RETURN write_outbox('sql:' || session_user, $1, $2, $3, $4, $5);
END
$airunner$;

CREATE FUNCTION {schema}.enqueue_as(
    principal text, name text, payload jsonb, queue text DEFAULT 'generation',
    delay_seconds integer DEFAULT 0, request_id uuid DEFAULT gen_random_uuid()
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $airunner$
BEGIN
    RETURN write_outbox($1, $2, $3, $4, $5, $6);
END
$airunner$;

REVOKE ALL ON FUNCTION {schema}.write_outbox(text, text, jsonb, text, integer, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION {schema}.enqueue(text, jsonb, text, integer, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION {schema}.enqueue_as(text, text, jsonb, text, integer, uuid) FROM PUBLIC;
"""

STEP_1: Final = f"{_TABLES}\n{_FUNCTIONS}"
"""The outbox, its ledger, sessions and settings, and the functions that write the first two."""
