ALTER TABLE nodes ADD COLUMN gateway INTEGER REFERENCES nodes (id);
CREATE INDEX nodes_gateway ON nodes (gateway);
