CREATE TABLE resolvers (
  zone TEXT NOT NULL,
  place INTEGER NOT NULL,
  address TEXT NOT NULL,
  PRIMARY KEY (zone, place)
) STRICT, WITHOUT ROWID;
