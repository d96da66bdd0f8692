ALTER TABLE users ADD COLUMN role TEXT NOT NULL DEFAULT 'member';
ALTER TABLE users ADD COLUMN password TEXT;
ALTER TABLE users ADD COLUMN issuer TEXT COLLATE "C";
ALTER TABLE users ADD COLUMN subject TEXT COLLATE "C";
ALTER TABLE users ADD COLUMN email TEXT;
ALTER TABLE users ADD COLUMN groups TEXT NOT NULL DEFAULT '[]';
ALTER TABLE users ADD COLUMN refresh TEXT;
ALTER TABLE users ADD COLUMN refreshed BIGINT;
CREATE UNIQUE INDEX users_identity ON users (issuer, subject);
CREATE TABLE sessions (
  id BYTEA PRIMARY KEY CHECK (length(id) = 16),
  "user" BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  created BIGINT NOT NULL,
  used BIGINT NOT NULL,
  ends BIGINT NOT NULL
);
CREATE INDEX sessions_user ON sessions ("user");
ALTER TABLE api_tokens ADD COLUMN giver BIGINT;
ALTER TABLE join_keys ADD COLUMN giver BIGINT;
CREATE INDEX api_tokens_giver ON api_tokens (giver);
CREATE INDEX join_keys_giver ON join_keys (giver);
