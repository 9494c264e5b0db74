-- Made by `python -m tests.state.golden schema`.

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    provider TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    settings TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    inputs TEXT NOT NULL,
    out TEXT NOT NULL,
    home TEXT NOT NULL,
    planned INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_input_tokens INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0,
    unpriced INTEGER NOT NULL DEFAULT 0,
    results_bytes INTEGER NOT NULL DEFAULT 0,
    errors_bytes INTEGER NOT NULL DEFAULT 0,
    needs TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    finished_at TEXT,
    CHECK (state = 'planning' OR (succeeded >= 0 AND failed >= 0 AND succeeded + failed <= planned))
) STRICT;

CREATE TABLE items (
    run_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT,
    line INTEGER NOT NULL,
    source INTEGER NOT NULL,
    offset INTEGER,
    length INTEGER,
    tokens INTEGER NOT NULL,
    batch INTEGER,
    round INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL,
    outcome TEXT,
    out_offset INTEGER,
    out_length INTEGER,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX items_pending ON items (run_id, seq) WHERE state = 'open' AND batch IS NULL;

CREATE INDEX items_later ON items (run_id, batch, seq) WHERE round > 0;

CREATE TABLE item_ids (
    run_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (run_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE batches (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    number INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL,
    requests INTEGER NOT NULL,
    size INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    key TEXT UNIQUE,
    intent_at TEXT,
    address TEXT,
    key_hint TEXT,
    fence TEXT,
    sends INTEGER NOT NULL DEFAULT 0,
    file_id TEXT,
    batch_id TEXT,
    certain INTEGER NOT NULL DEFAULT 1,
    provider_status TEXT,
    provider_counts TEXT NOT NULL DEFAULT '{}',
    submitted_at TEXT,
    expires_at TEXT,
    ended_at TEXT,
    collected_at TEXT,
    next_check_at TEXT,
    stalls_at TEXT,
    not_before TEXT,
    check_failures INTEGER NOT NULL DEFAULT 0,
    refusals INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    looks INTEGER NOT NULL DEFAULT 0,
    cancel_cause TEXT,
    succeeded INTEGER NOT NULL DEFAULT 0,
    errored INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    canceled INTEGER NOT NULL DEFAULT 0,
    missing INTEGER NOT NULL DEFAULT 0,
    invalid INTEGER NOT NULL DEFAULT 0,
    quarantined INTEGER NOT NULL DEFAULT 0,
    late INTEGER NOT NULL DEFAULT 0,
    faults TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX batches_batch_id ON batches (batch_id) WHERE batch_id IS NOT NULL;

CREATE TABLE attempts (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL,
    lane TEXT NOT NULL,
    batch INTEGER,
    round INTEGER NOT NULL,
    outcome TEXT,
    error_type TEXT,
    error_code TEXT,
    error_message TEXT,
    at TEXT NOT NULL,
    PRIMARY KEY (run_id, seq, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX attempts_batch ON attempts (run_id, batch);

CREATE TABLE outcomes (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    lane TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (run_id, lane, outcome)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    run_id INTEGER REFERENCES runs (id),
    batch INTEGER,
    at TEXT NOT NULL,
    level INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;

CREATE INDEX events_run ON events (run_id, id);

PRAGMA application_id = 1651794792;
