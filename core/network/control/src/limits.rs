//! Every bound of what the coordination service and a node say to each other, by name.

/// Bytes of one request of a node, before sealing.
pub const REQUEST_BYTES_MAX: usize = 128 * 1024;
/// Bytes of one answer, before sealing: a map of `PEERS_MAX` usual peers fits.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Peers in one map.
pub const PEERS_MAX: usize = 16_384;
/// Characters of a DNS label (RFC 1035, section 2.3.4).
pub const LABEL_LEN_MAX: usize = 63;
/// Characters of a domain name in text (RFC 1035, section 2.3.4: 255 bytes on the wire).
pub const DOMAIN_LEN_MAX: usize = 253;
/// Bytes of a hostname that a node may say of itself, before it is made a label.
pub const HOSTNAME_BYTES_MAX: usize = 255;
/// Bytes of the name of an operating system or of a program's version.
pub const FACT_BYTES_MAX: usize = 64;
/// Candidate addresses of one node.
pub const ENDPOINTS_MAX: usize = 32;
/// Routes of one node.
pub const ROUTES_MAX: usize = 256;
/// Words of a node's ways through others: sites of a file, a pair each, and some more.
pub const WAYS_MAX: usize = 4096;
/// Tags of one node or key.
pub const TAGS_MAX: usize = 32;
/// Characters of a tag with its prefix.
pub const TAG_LEN_MAX: usize = 63;
/// STUN addresses of one relay.
pub const RELAY_STUN_MAX: usize = 2;
/// Relays in one map.
pub const RELAYS_MAX: usize = 64;
/// Resolvers, and split zones, in one map.
pub const RESOLVERS_MAX: usize = 64;
/// Names of a network that are no node's.
pub const RECORDS_MAX: usize = 256;
/// Addresses of one of them.
pub const RECORD_ADDRESSES_MAX: usize = 8;
/// Bytes of a policy text and of the compiled rules in a map.
pub const POLICY_BYTES_MAX: usize = 1024 * 1024;
/// URLs in one token.
pub const URLS_MAX: usize = 4;
/// URLs of its server that a node keeps: those of a map, and older ones behind them.
pub const URLS_KEPT_MAX: usize = 2 * URLS_MAX;
/// Bytes of one URL.
pub const URL_BYTES_MAX: usize = 255;
/// Signed deltas kept on top of a signed map, before a whole map is asked for.
pub const CACHED_DELTAS_MAX: usize = 256;
/// Links in one report of a node.
pub const LINKS_MAX: usize = 256;
/// Bytes of the URL of a page where somebody signs in.
pub const LINK_BYTES_MAX: usize = 512;
/// Bytes of a refusal's explanation.
pub const DETAIL_BYTES_MAX: usize = 1024;
