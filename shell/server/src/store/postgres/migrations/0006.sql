CREATE TABLE path_hours (
  node BIGINT NOT NULL,
  peer BIGINT NOT NULL,
  at BIGINT NOT NULL,
  rtt_us_min BIGINT,
  rtt_us_max BIGINT,
  loss_ppm_max BIGINT NOT NULL,
  low_bps BIGINT,
  high_bps BIGINT,
  PRIMARY KEY (at, node, peer)
);
