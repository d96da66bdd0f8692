ALTER TABLE nodes ADD COLUMN gateway BIGINT REFERENCES nodes (id);
CREATE INDEX nodes_gateway ON nodes (gateway);
