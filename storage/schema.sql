-- The store: HOME/store.duckdb, one file for all runs. Version 2.
-- Every row carries the iteration and stage that wrote it or is reached from one that does, so that a stage can be
-- replaced inside one transaction. `*_at` are UTC. Lists of one row have one length.

CREATE TABLE store (schema_version INTEGER NOT NULL);    -- one row: which version of this file made the tables

CREATE TABLE runs (
    run VARCHAR PRIMARY KEY,
    config JSON NOT NULL,             -- nested keys, as given plus defaults
    identity VARCHAR NOT NULL,        -- hash of the keys that say what is computed
    seed BIGINT NOT NULL,
    code_version VARCHAR NOT NULL,
    library_versions JSON NOT NULL,
    mlflow_run_id VARCHAR,
    status VARCHAR NOT NULL,          -- running, finished, failed, stopped
    schema_version INTEGER NOT NULL,
    created_at TIMESTAMP NOT NULL,
    notes JSON NOT NULL               -- changes on resume: [{at, what, before, after}]
);

CREATE TABLE stages (
    run VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    stage VARCHAR NOT NULL,
    shard INTEGER NOT NULL,           -- 0 for stages that have no shards
    receipt JSON NOT NULL,            -- ids, counts and paths for the stages that follow
    input_hash VARCHAR NOT NULL,      -- of the configuration and receipts it was computed from
    attempt INTEGER NOT NULL,         -- 1; higher where a finished stage was done again
    started_at TIMESTAMP NOT NULL,
    finished_at TIMESTAMP NOT NULL,
    pid INTEGER NOT NULL,
    code_version VARCHAR NOT NULL,
    library_versions JSON NOT NULL,
    PRIMARY KEY (run, iteration, stage, shard)
);

CREATE TABLE questions (
    question_id VARCHAR PRIMARY KEY,
    dataset VARCHAR NOT NULL,
    split VARCHAR NOT NULL,           -- warm_start, train, validation, test
    text VARCHAR NOT NULL,
    answers VARCHAR[] NOT NULL,
    evidence JSON NOT NULL,           -- [{passage_id, sentence}] in hop order
    hops INTEGER,
    metadata JSON NOT NULL
);

CREATE TABLE trajectories (
    run VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    purpose VARCHAR NOT NULL,         -- train, greedy, sampled, test_greedy, test_sampled
    question_id VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    shard INTEGER NOT NULL,
    checkpoint INTEGER NOT NULL,      -- whose weights sampled it
    ending VARCHAR NOT NULL,
    turns INTEGER NOT NULL,
    answer VARCHAR,
    exact_match DOUBLE NOT NULL,
    f1 DOUBLE NOT NULL,
    PRIMARY KEY (run, iteration, purpose, question_id, attempt)
);

CREATE TABLE turns (
    run VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    turn INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    action_text VARCHAR NOT NULL,
    tool_calls JSON NOT NULL,         -- [{name, arguments, ok, text, sources, malformed}] in order
    observation_text VARCHAR NOT NULL,
    given_ids INTEGER[] NOT NULL,     -- tokens the world put before the action
    action_ids INTEGER[] NOT NULL,    -- tokens exactly as sampled
    action_logprobs DOUBLE[] NOT NULL,
    reward DOUBLE DEFAULT 0           -- the environment's own, before rewards.environment
);

CREATE TABLE annotations (
    run VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    segment INTEGER NOT NULL,
    token_ids INTEGER[] NOT NULL,
    action_mask BOOLEAN[] NOT NULL,   -- true exactly on sampled tokens
    logprobs DOUBLE[] NOT NULL,
    rewards DOUBLE[] NOT NULL,
    reward_parts JSON NOT NULL        -- {turn: {component: value}}
);

CREATE TABLE credits (
    run VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    segment INTEGER NOT NULL,
    "values" DOUBLE[] NOT NULL,
    advantages DOUBLE[] NOT NULL,
    returns DOUBLE[] NOT NULL
);

CREATE TABLE metrics (
    run VARCHAR NOT NULL,
    iteration INTEGER NOT NULL,
    stage VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    value DOUBLE,                     -- NaN where it is not a number
    "at" TIMESTAMP NOT NULL,
    PRIMARY KEY (run, iteration, key)
);
