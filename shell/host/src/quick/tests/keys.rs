//! Preshared keys from files: what is read, and what is refused and why.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::keyfile::{OVERLAP_MAX, PERIOD_MAX};
use crate::quick::*;

const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PEER: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

/// A folder of a test, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warren-keys-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A link's file whose peer has these lines.
    fn link(&self, lines: &str) -> PathBuf {
        let text = format!("[Interface]\nPrivateKey = {KEY}\n[Peer]\nPublicKey = {PEER}\n{lines}");
        self.file("wt0.conf", text.as_bytes(), 0o600)
    }

    fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Period and overlap of a good file.
fn times(lines: &str) -> (Option<Duration>, Duration) {
    let text = format!("[Interface]\n[Peer]\nPublicKey = {PEER}\nPresharedKeyFile = k\n{lines}");
    let settings = parse(&text).unwrap_or_else(|faults| panic!("{lines}: {faults:?}"));
    let file = settings.peers[0].key_file.as_ref().unwrap();
    assert_eq!(file.path, Path::new("k"));
    (file.period, file.overlap)
}

#[test]
fn source_004_2_periods_and_overlaps_are_read_with_their_units_and_defaults() {
    for (lines, period, overlap) in [
        ("", None, seconds(60)),
        ("PresharedKeyOverlap = 0", None, seconds(0)),
        ("PresharedKeyOverlap = 1h", None, OVERLAP_MAX),
        ("PresharedKeySchedule = 24h", Some(seconds(86_400)), seconds(60)),
        ("presharedkeyschedule=366d", Some(PERIOD_MAX), seconds(60)),
        ("PresharedKeySchedule = 5", Some(seconds(5)), Duration::from_millis(2500)),
        ("PresharedKeySchedule = 90s\nPresharedKeyOverlap = 45", Some(seconds(90)), seconds(45)),
        ("PresharedKeyOverlap = 15m\nPresharedKeySchedule = 2h", Some(seconds(7200)), seconds(900)),
    ] {
        assert_eq!(times(lines), (period, overlap), "{lines}");
    }
}

#[test]
fn source_004_2_what_is_out_of_range_or_does_not_go_together_is_refused_with_the_range() {
    for (lines, expected) in [
        (
            "PresharedKeySchedule = 4s",
            "5:24: PresharedKeySchedule: `4s` is not a time from 5s to 366d",
        ),
        ("PresharedKeySchedule = 367d", "5:24: PresharedKeySchedule: `367d` is not a time from"),
        ("PresharedKeySchedule = daily", "5:24: PresharedKeySchedule: `daily` is not a time"),
        ("PresharedKeySchedule = 1w", "5:24: PresharedKeySchedule: `1w` is not a time"),
        ("PresharedKeySchedule = +9", "5:24: PresharedKeySchedule: `+9` is not a time"),
        ("PresharedKeySchedule = 99999999999999999999d", "5:24: PresharedKeySchedule: `"),
        (
            "PresharedKeyOverlap = 3601",
            "5:23: PresharedKeyOverlap: `3601` is not a time from 0s to 1h",
        ),
        ("PresharedKeyOverlap = -1", "5:23: PresharedKeyOverlap: `-1` is not a time"),
        (
            "PresharedKeySchedule = 60s\nPresharedKeyOverlap = 31s",
            "6:23: PresharedKeyOverlap: 31s is more than half of PresharedKeySchedule; write 30s",
        ),
        ("PresharedKeyFile =", "5:"),
    ] {
        let file = "PresharedKeyFile = /etc/key\n";
        let text = format!("[Interface]\n[Peer]\nPublicKey = {PEER}\n{file}{lines}");
        let Fault { line, column, what } = &parse(&text).expect_err(lines)[0];
        let found = format!("{line}:{column}: {what}");
        assert!(found.starts_with(expected), "{lines}\n  gives {found}\n not {expected}");
    }
    for (lines, expected) in [
        ("PresharedKeySchedule = 24h", "4:24: PresharedKeySchedule: keys come from a file; say"),
        (
            &format!("PresharedKey = {KEY}\nPresharedKeyFile = k")[..],
            "5:20: PresharedKeyFile: PresharedKey stands there, too; keep one of them",
        ),
    ] {
        let text = format!("[Interface]\n[Peer]\nPublicKey = {PEER}\n{lines}");
        let Fault { line, column, what } = &parse(&text).expect_err(lines)[0];
        let found = format!("{line}:{column}: {what}");
        assert!(found.starts_with(expected), "{lines}\n  gives {found}\n not {expected}");
    }
}

#[test]
fn source_004_13_key_files_that_are_of_no_use_are_told_with_what_to_do() {
    let folder = Folder::new("bad");
    let schedule = "PresharedKeyFile = key\nPresharedKeySchedule = 24h\n";
    let single = "PresharedKeyFile = key\n";
    let refused = |lines: &str| {
        let refused = read(&folder.link(lines)).expect_err(lines).to_string();
        assert!(refused.contains("wt0.conf:5:20: PresharedKeyFile: "), "{refused}");
        assert!(refused.contains(&format!("{}/key: ", folder.0.display())), "{refused}");
        refused
    };
    assert!(refused(schedule).contains("No such file") && refused(schedule).contains("`dd if="));
    for (bytes, expected) in [
        (0, "it has 0 bytes, and a schedule needs two blocks of 64 at least; make one with `dd"),
        (64, "it has 64 bytes, and a schedule"),
        (467_199, "it has 467199 bytes, which are no whole blocks of 64; copy it again, in full"),
    ] {
        folder.file("key", &vec![7; bytes], 0o400);
        assert!(refused(schedule).contains(expected), "{}", refused(schedule));
    }
    folder.file("key", &[7; 640], 0o404);
    let open = refused(schedule);
    assert!(open.contains("others may read or write it (mode 404); run `chmod 400`"), "{open}");
    // The blocks of a schedule are no key in base64, and the other way round.
    folder.file("key", &[7; 640], 0o400);
    assert!(refused(single).contains("not one key in base64") && refused(single).contains("24h"));
    folder.file("key", format!("{KEY}\n").as_bytes(), 0o400);
    assert!(refused(schedule).contains("it has 45 bytes"));
    std::fs::remove_file(folder.0.join("key")).unwrap();
    std::fs::create_dir(folder.0.join("key")).unwrap();
    assert!(refused(schedule).contains("not a file"));
    let device = read(&folder.link("PresharedKeyFile = /dev/zero\n")).unwrap_err().to_string();
    assert!(device.contains("/dev/zero: not a file"), "{device}");
}

#[test]
fn source_004_14_a_key_file_is_read_with_its_link_and_a_change_in_use_is_noticed() {
    let folder = Folder::new("good");
    let key = |settings: &Settings| settings.peers[0].preshared_key.clone().unwrap();
    let path = folder.file("key", format!("{KEY}\n").as_bytes(), 0o400);
    let single = read(&folder.link("PresharedKeyFile = key\n")).unwrap();
    assert_eq!(key(&single), Preshared::Key(KEY.parse().unwrap(), seconds(60)));
    assert!(single.warnings.is_empty(), "{:?}", single.warnings);

    folder.file("key", &[[1; 64], [2; 64]].concat(), 0o400);
    let lines = format!("PresharedKeyFile = {}\nPresharedKeySchedule = 24h\n", path.display());
    let settings = read(&folder.link(&lines)).unwrap();
    let Preshared::Scheduled(schedule) = key(&settings) else { panic!("it has a schedule") };
    assert_eq!(schedule.key(seconds(0)), schedule.key(seconds(2 * 86_400)));
    assert_ne!(schedule.key(seconds(0)), schedule.key(seconds(86_400)));

    let [(_, file)] = &settings.key_files()[..] else { panic!("one file") };
    assert_eq!(file.change(), None);
    let same = read(&folder.link(&lines)).unwrap();
    assert_eq!(same.changes_since(&settings, |_| Err("no name")), Ok(vec![]), "as it was");
    folder.file("key", &[[3; 64], [4; 64]].concat(), 0o400);
    assert_eq!(file.change(), Some("changed"));
    let other = read(&folder.link(&lines)).unwrap();
    let changes = other.changes_since(&settings, |_| Err("no name")).unwrap();
    assert!(matches!(&changes[..], [Change::Peer(peer)] if peer.preshared_key.is_some()));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.change(), Some("was removed"));
    let text = format!("{settings:?} {schedule:?}");
    assert!(!text.contains("1, 1, 1"), "secrets stay secret: {text}");
}

#[test]
fn what_a_link_reads_again_only_when_it_comes_up_is_named() {
    let file = |lines: &str| parse(&format!("[Interface]\n{lines}")).unwrap();
    let old = file("Address = 10.0.0.1/24\nMTU = 1400\n");
    assert!(old.waits_for_next_up(&old).is_empty());
    let new =
        file("Address = 10.0.0.2/24\nMTU = 1400\nFrames = off\nListenPort = 5\nListenIp = 99\n");
    assert_eq!(new.waits_for_next_up(&old), ["Address", "Frames", "ListenIp"]);
}

/// Issues of wg-quick's users: files as editors, other tools and other languages leave them.
#[test]
fn files_are_taken_as_wg_and_wg_quick_take_them() {
    let folder = Folder::new("quick");
    let head = format!("[Interface]\nPrivateKey = {KEY}\n");
    let text = format!(
        "\u{feff}{head}DNS = 10.0.0.1, ~corp.example, lan, ~.\n# Warren: OrderMs = 5\n\
         # Warrens: are animals\n[Peer]\nPublicKey = {PEER}\n  #warren:HoldMs=32 # as Nest\n"
    );
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(b"# B\xfcro in Z\xfcrich\nAllowedIPs = 10.0.0.0/8 # \xe4\n");
    let settings = read(&folder.file("wt0.conf", &bytes, 0o600)).unwrap();
    assert_eq!(settings.interface.dns_search, ["~corp.example", "lan", "~."]);
    assert_eq!((settings.interface.order_ms, settings.peers[0].hold_ms), (Some(5), 32));
    assert_eq!(settings.peers[0].allowed_ips.len(), 1);
    let fault = |line: &str| {
        let faults = parse(&format!("{head}{line}")).expect_err(line);
        format!("{}:{}: {}", faults[0].line, faults[0].column, faults[0].what)
    };
    let misspelt = fault("# Warren: OrderMss = 5");
    assert_eq!(misspelt, "3:11: unknown key `OrderMss`; did you mean OrderMs?");
    let odd = fault(" # warren:OrderMs = 500");
    assert!(odd.starts_with("3:21: OrderMs: `500` is not a number from 0 to"), "{odd}");
    assert!(fault("DNS = ~b d").contains("`~b d` is not an address or a domain"));
}

#[test]
fn tables_and_ports_may_have_the_names_that_this_machine_knows() {
    let folder = Folder::new("names");
    // Every machine with iproute2 knows this table, and with netbase this service.
    if !Path::new("/etc/services").exists() {
        eprintln!("skipped: there are no names of services here");
        return;
    }
    let settings = read(&folder.link("Endpoint = 192.0.2.1:domain\n")).unwrap();
    assert_eq!(settings.peers[0].endpoint, Some(Host::Address("192.0.2.1:53".parse().unwrap())));
    let refused = read(&folder.link("Endpoint = 192.0.2.1:nonsuch\n")).unwrap_err().to_string();
    assert!(refused.contains("`192.0.2.1:nonsuch` ends in no port from 1 to 65535"), "{refused}");
}
