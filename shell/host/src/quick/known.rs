//! What this machine calls tables and ports: `Table = vpn` and `Endpoint = host:domain`.

use std::collections::BTreeMap;
use std::path::Path;

/// The longest list of names that is read, in bytes.
const LIST_LEN_MAX: u64 = 4 << 20;
/// Where iproute2 has names of tables; the first that says one wins.
const TABLES: [&str; 2] = ["/etc/iproute2/rt_tables", "/usr/share/iproute2/rt_tables"];
const PORTS: &str = "/etc/services";

/// Names of tables and of ports, for UDP.
#[derive(Debug, Default)]
pub(super) struct Known {
    tables: BTreeMap<String, u32>,
    ports: BTreeMap<String, u16>,
}

impl Known {
    /// What the files of this machine say.
    pub(super) fn here() -> Self {
        let mut known = Self::default();
        for path in TABLES {
            known.add_tables(&read(Path::new(path)));
            let more = std::fs::read_dir(format!("{path}.d"));
            for entry in more.into_iter().flatten().flatten() {
                if entry.path().extension().is_some_and(|end| end == "conf") {
                    known.add_tables(&read(&entry.path()));
                }
            }
        }
        known.add_ports(&read(Path::new(PORTS)));
        known
    }

    /// Lines of `NUMBER NAME`.
    fn add_tables(&mut self, text: &str) {
        for mut words in text.lines().map(words) {
            let (Some(number), Some(name)) = (words.next(), words.next()) else { continue };
            let number = match number.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            if let Ok(number) = number {
                self.tables.entry(name.to_owned()).or_insert(number);
            }
        }
    }

    /// Lines of `NAME PORT/PROTOCOL OTHER-NAME …`.
    fn add_ports(&mut self, text: &str) {
        for mut words in text.lines().map(words) {
            let (Some(name), Some(port)) = (words.next(), words.next()) else { continue };
            let port = port.strip_suffix("/udp").and_then(|port| port.parse().ok());
            let Some(port) = port.filter(|port| *port != 0) else { continue };
            for name in std::iter::once(name).chain(words) {
                self.ports.entry(name.to_owned()).or_insert(port);
            }
        }
    }

    /// The table with this name.
    pub(super) fn table(&self, name: &str) -> Option<u32> {
        self.tables.get(name).copied().filter(|number| *number != 0)
    }

    /// An endpoint whose port is the name of a service, with its number.
    pub(super) fn numbered(&self, endpoint: &str) -> Option<String> {
        let (host, name) = endpoint.rsplit_once(':')?;
        Some(format!("{host}:{}", self.ports.get(name)?))
    }
}

/// The words of a line before its comment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split('#').next().unwrap_or_default().split_whitespace()
}

/// A file's text; nothing where there is none, or one that is too long.
fn read(path: &Path) -> String {
    let fits = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= LIST_LEN_MAX);
    let bytes = if fits { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_and_of_services_are_read_as_iproute2_and_wg_read_them() {
        let mut known = Known::default();
        known.add_tables("# reserved\n255\tlocal\n0 unspec\n 200 vpn # ours\n0x1f4 far\nx y\n");
        known.add_tables("201 vpn\n");
        assert_eq!([known.table("vpn"), known.table("far")], [Some(200), Some(500)]);
        assert_eq!([known.table("unspec"), known.table("y"), known.table("")], [None; 3]);
        known.add_ports("domain 53/tcp\ndomain 53/udp\nntp 123/udp time # NTP\nbad 0/udp\n");
        assert_eq!(known.numbered("[fd00::1]:domain").as_deref(), Some("[fd00::1]:53"));
        assert_eq!(known.numbered("vpn.example.org:time").as_deref(), Some("vpn.example.org:123"));
        assert_eq!(known.numbered("vpn.example.org:bad"), None);
        assert_eq!(known.numbered("vpn.example.org"), None);
    }
}
