-- Tables and columns of Headscale 0.28, as far as they are read.
CREATE TABLE users (id integer PRIMARY KEY AUTOINCREMENT, name text, display_name text, email text,
  provider_identifier text, provider text, profile_pic_url text, created_at datetime,
  updated_at datetime, deleted_at datetime);
CREATE TABLE pre_auth_keys (id integer PRIMARY KEY AUTOINCREMENT, key text, prefix text, hash blob,
  user_id integer, reusable numeric, ephemeral numeric DEFAULT false, used numeric DEFAULT false,
  tags text, expiration datetime, created_at datetime);
CREATE TABLE nodes (id integer PRIMARY KEY AUTOINCREMENT, machine_key text, node_key text,
  disco_key text, endpoints text, host_info text, ipv4 text, ipv6 text, hostname text,
  given_name varchar(63), user_id integer, register_method text, ephemeral numeric DEFAULT false,
  tags text, auth_key_id integer, last_seen datetime, expiry datetime, approved_routes text,
  created_at datetime, updated_at datetime, deleted_at datetime);
CREATE TABLE policies (id integer PRIMARY KEY AUTOINCREMENT, data text, created_at datetime,
  updated_at datetime, deleted_at datetime);
