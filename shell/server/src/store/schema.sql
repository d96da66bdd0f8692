CREATE TABLE api_tokens (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  lookup BLOB NOT NULL UNIQUE CHECK (length(lookup) = 8),
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  scopes TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER,
  last_used INTEGER,
  revoked INTEGER
, maker INTEGER REFERENCES api_tokens (id), giver INTEGER) STRICT;
CREATE INDEX api_tokens_giver ON api_tokens (giver);
CREATE INDEX api_tokens_maker ON api_tokens (maker);
CREATE TABLE approved_routes (
  node INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  prefix TEXT NOT NULL,
  PRIMARY KEY (node, prefix)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  detail TEXT NOT NULL,
  chain BLOB NOT NULL CHECK (length(chain) = 32)
) STRICT;
CREATE TABLE join_keys (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  lookup BLOB NOT NULL UNIQUE CHECK (length(lookup) = 8),
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  user INTEGER REFERENCES users (id),
  reusable INTEGER NOT NULL CHECK (reusable IN (0, 1)),
  ephemeral INTEGER NOT NULL CHECK (ephemeral IN (0, 1)),
  tags TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER,
  used INTEGER,
  revoked INTEGER
, maker INTEGER REFERENCES api_tokens (id), giver INTEGER) STRICT;
CREATE INDEX join_keys_giver ON join_keys (giver);
CREATE INDEX join_keys_maker ON join_keys (maker);
CREATE TABLE nodes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  machine_key BLOB NOT NULL UNIQUE CHECK (length(machine_key) = 32),
  node_key BLOB NOT NULL UNIQUE CHECK (length(node_key) = 32),
  name TEXT NOT NULL UNIQUE,
  number INTEGER NOT NULL UNIQUE CHECK (number > 0),
  user INTEGER REFERENCES users (id),
  join_key INTEGER REFERENCES join_keys (id),
  tags TEXT NOT NULL,
  ephemeral INTEGER NOT NULL CHECK (ephemeral IN (0, 1)),
  approved INTEGER NOT NULL CHECK (approved IN (0, 1)),
  created INTEGER NOT NULL,
  expires INTEGER,
  last_seen INTEGER,
  host TEXT NOT NULL
, begun INTEGER, renewable INTEGER, gateway INTEGER REFERENCES nodes (id), ways TEXT) STRICT;
CREATE INDEX nodes_gateway ON nodes (gateway);
CREATE TABLE path_hours (
  node INTEGER NOT NULL,
  peer INTEGER NOT NULL,
  at INTEGER NOT NULL,
  rtt_us_min INTEGER,
  rtt_us_max INTEGER,
  loss_ppm_max INTEGER NOT NULL,
  low_bps INTEGER,
  high_bps INTEGER,
  PRIMARY KEY (at, node, peer)
) STRICT, WITHOUT ROWID;
CREATE TABLE policies (
  version INTEGER PRIMARY KEY AUTOINCREMENT,
  text TEXT NOT NULL,
  actor TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE TABLE released (
  number INTEGER PRIMARY KEY,
  until INTEGER NOT NULL
, name TEXT, machine BLOB, join_key INTEGER) STRICT;
CREATE INDEX released_machine ON released (machine);
CREATE INDEX released_name ON released (name);
CREATE INDEX released_until ON released (until);
CREATE TABLE resolvers (
  zone TEXT NOT NULL,
  place INTEGER NOT NULL,
  address TEXT NOT NULL,
  PRIMARY KEY (zone, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE sessions (
  id BLOB PRIMARY KEY CHECK (length(id) = 16),
  user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  created INTEGER NOT NULL,
  used INTEGER NOT NULL,
  ends INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_user ON sessions (user);
CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE users (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  created INTEGER NOT NULL
, role TEXT NOT NULL DEFAULT 'member', password TEXT, issuer TEXT, subject TEXT, email TEXT, groups TEXT NOT NULL DEFAULT '[]', refresh TEXT, refreshed INTEGER) STRICT;
CREATE UNIQUE INDEX users_identity ON users (issuer, subject);
