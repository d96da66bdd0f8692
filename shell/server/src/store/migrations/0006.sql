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
