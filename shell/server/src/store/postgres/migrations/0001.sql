CREATE TABLE settings (
  name TEXT COLLATE "C" PRIMARY KEY,
  value TEXT NOT NULL
);
CREATE TABLE users (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name TEXT COLLATE "C" NOT NULL UNIQUE,
  created BIGINT NOT NULL
);
CREATE TABLE join_keys (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lookup BYTEA NOT NULL UNIQUE CHECK (length(lookup) = 8),
  hash BYTEA NOT NULL CHECK (length(hash) = 32),
  "user" BIGINT REFERENCES users (id),
  reusable BIGINT NOT NULL CHECK (reusable IN (0, 1)),
  ephemeral BIGINT NOT NULL CHECK (ephemeral IN (0, 1)),
  tags TEXT NOT NULL,
  created BIGINT NOT NULL,
  expires BIGINT,
  used BIGINT,
  revoked BIGINT
);
CREATE TABLE nodes (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  machine_key BYTEA NOT NULL UNIQUE CHECK (length(machine_key) = 32),
  node_key BYTEA NOT NULL UNIQUE CHECK (length(node_key) = 32),
  name TEXT COLLATE "C" NOT NULL UNIQUE,
  number BIGINT NOT NULL UNIQUE CHECK (number > 0),
  "user" BIGINT REFERENCES users (id),
  join_key BIGINT REFERENCES join_keys (id),
  tags TEXT NOT NULL,
  ephemeral BIGINT NOT NULL CHECK (ephemeral IN (0, 1)),
  approved BIGINT NOT NULL CHECK (approved IN (0, 1)),
  created BIGINT NOT NULL,
  expires BIGINT,
  last_seen BIGINT,
  host TEXT NOT NULL
);
CREATE TABLE approved_routes (
  node BIGINT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  prefix TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (node, prefix)
);
CREATE TABLE released (
  number BIGINT PRIMARY KEY,
  until BIGINT NOT NULL
);
CREATE TABLE policies (
  version BIGINT PRIMARY KEY,
  text TEXT NOT NULL,
  actor TEXT NOT NULL,
  created BIGINT NOT NULL
);
CREATE TABLE api_tokens (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lookup BYTEA NOT NULL UNIQUE CHECK (length(lookup) = 8),
  hash BYTEA NOT NULL CHECK (length(hash) = 32),
  scopes TEXT NOT NULL,
  created BIGINT NOT NULL,
  expires BIGINT,
  last_used BIGINT,
  revoked BIGINT
);
CREATE TABLE audit (
  id BIGINT PRIMARY KEY,
  time BIGINT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  detail TEXT NOT NULL,
  chain BYTEA NOT NULL CHECK (length(chain) = 32)
);
