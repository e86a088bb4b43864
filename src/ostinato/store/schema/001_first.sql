-- Portable SQL where it can be: TEXT, REAL, INTEGER and BLOB columns, upserts by ON CONFLICT, partial indexes.
-- Requests and traces have tables of their own, so that ending a turn does not rewrite the request.

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    person TEXT NOT NULL,
    purpose TEXT NOT NULL CHECK (purpose IN ('live', 'episode')),
    opened_at REAL NOT NULL,
    last_at REAL NOT NULL,
    experiment_id TEXT,
    arm TEXT CHECK (arm IN ('control', 'candidate')),
    found_by TEXT NOT NULL,
    closed_at REAL,
    sandbox_id TEXT
);
CREATE INDEX sessions_by_experiment ON sessions (experiment_id) WHERE experiment_id IS NOT NULL;
CREATE INDEX sessions_open ON sessions (opened_at) WHERE closed_at IS NULL;

CREATE TABLE turns (
    turn_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id),
    turn_index INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    segment_reason TEXT NOT NULL,
    slot TEXT NOT NULL,
    versions TEXT NOT NULL,
    finish_reason TEXT,
    temperature REAL NOT NULL,
    started_at REAL NOT NULL,
    first_token_at REAL,
    ended_at REAL,
    trainable INTEGER NOT NULL,
    untrainable_reason TEXT NOT NULL,
    UNIQUE (session_id, turn_index)
);
CREATE INDEX turns_unfinished ON turns (started_at) WHERE ended_at IS NULL;

CREATE TABLE requests (
    turn_id TEXT PRIMARY KEY REFERENCES turns (turn_id),
    messages BLOB NOT NULL
);

-- Either `body` holds the packed trace, or `object`, `start` and `size` say where it lies in a sealed segment.
CREATE TABLE traces (
    turn_id TEXT PRIMARY KEY REFERENCES turns (turn_id),
    session_id TEXT NOT NULL REFERENCES sessions (session_id),
    sha256 BLOB NOT NULL,
    body BLOB,
    object TEXT,
    start INTEGER,
    size INTEGER NOT NULL,
    CHECK ((body IS NULL) = (object IS NOT NULL AND start IS NOT NULL))
);
CREATE INDEX traces_unsealed ON traces (session_id) WHERE body IS NOT NULL;

CREATE TABLE feedback (
    event_id TEXT PRIMARY KEY,
    response_id TEXT NOT NULL,
    session_id TEXT REFERENCES sessions (session_id),
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    received_at REAL NOT NULL,
    payload TEXT NOT NULL
);
CREATE INDEX feedback_by_session ON feedback (session_id);
CREATE INDEX feedback_parked ON feedback (response_id) WHERE session_id IS NULL;

CREATE TABLE rewards (
    reward_id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id),
    outcome TEXT NOT NULL,
    reward REAL,
    record TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX rewards_by_session ON rewards (session_id, reward_id);

CREATE TABLE fates (
    session_id TEXT PRIMARY KEY REFERENCES sessions (session_id),
    fate TEXT NOT NULL,
    reason TEXT NOT NULL,
    version TEXT NOT NULL,
    at REAL NOT NULL
);

CREATE TABLE versions (
    version TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    record TEXT NOT NULL
);

CREATE TABLE releases (
    release_id INTEGER PRIMARY KEY,
    version TEXT NOT NULL,
    at REAL NOT NULL,
    experiment_id TEXT
);

CREATE TABLE experiments (
    experiment_id TEXT PRIMARY KEY,
    cycle INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    started_at REAL NOT NULL,
    record TEXT NOT NULL
);
-- People meet one candidate at a time.
CREATE UNIQUE INDEX experiments_one_running ON experiments (verdict) WHERE verdict = 'running';

CREATE TABLE looks (
    look_id INTEGER PRIMARY KEY,
    experiment_id TEXT NOT NULL REFERENCES experiments (experiment_id),
    metric TEXT NOT NULL,
    at REAL NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX looks_by_experiment ON looks (experiment_id, look_id);

CREATE TABLE episodes (
    episode_id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    version TEXT NOT NULL,
    task_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX episodes_by_run ON episodes (run_id, version);
CREATE INDEX episodes_by_version ON episodes (version);

CREATE TABLE bench_tasks (
    task_id TEXT PRIMARY KEY,
    source_session TEXT REFERENCES sessions (session_id),
    accepted INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL,
    task TEXT NOT NULL
);

CREATE TABLE sandboxes (
    sandbox_id TEXT PRIMARY KEY,
    base TEXT NOT NULL,
    purpose TEXT NOT NULL,
    created_at REAL NOT NULL,
    destroyed_at REAL
);

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);

CREATE TABLE incidents (
    incident_id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    message TEXT NOT NULL,
    session_id TEXT,
    at REAL NOT NULL
);

CREATE TABLE progress (
    name TEXT PRIMARY KEY,
    at REAL NOT NULL,
    value TEXT NOT NULL
);

CREATE TABLE api_keys (
    secret_sha256 TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    created_at REAL NOT NULL,
    revoked_at REAL
);
