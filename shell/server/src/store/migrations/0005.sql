ALTER TABLE users ADD COLUMN role TEXT NOT NULL DEFAULT 'member';
ALTER TABLE users ADD COLUMN password TEXT;
ALTER TABLE users ADD COLUMN issuer TEXT;
ALTER TABLE users ADD COLUMN subject TEXT;
ALTER TABLE users ADD COLUMN email TEXT;
ALTER TABLE users ADD COLUMN groups TEXT NOT NULL DEFAULT '[]';
ALTER TABLE users ADD COLUMN refresh TEXT;
ALTER TABLE users ADD COLUMN refreshed INTEGER;
CREATE UNIQUE INDEX users_identity ON users (issuer, subject);
CREATE TABLE sessions (
  id BLOB PRIMARY KEY CHECK (length(id) = 16),
  user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  created INTEGER NOT NULL,
  used INTEGER NOT NULL,
  ends INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_user ON sessions (user);
ALTER TABLE api_tokens ADD COLUMN giver INTEGER;
ALTER TABLE join_keys ADD COLUMN giver INTEGER;
CREATE INDEX api_tokens_giver ON api_tokens (giver);
CREATE INDEX join_keys_giver ON join_keys (giver);
