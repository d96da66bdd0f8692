CREATE TABLE resolvers (
  zone TEXT COLLATE "C" NOT NULL,
  place BIGINT NOT NULL,
  address TEXT NOT NULL,
  PRIMARY KEY (zone, place)
);
