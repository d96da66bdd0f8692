//! What a gateway tells on of a LAN with a printer, a robot and things that are nobody's business.

use proptest::prelude::*;

use super::*;

fn reflector() -> Reflector {
    Reflector::new(&["_ipp._tcp".parse().unwrap(), "_ros-master._tcp.local".parse().unwrap()])
}

fn name_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Name::from_text(text).unwrap().write(&mut bytes);
    bytes
}

/// One record: its name, its type, its data.
fn entry(name: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = name_of(name);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0x80, 1, 0, 0, 0, 120]);
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn srv(target: &str) -> Vec<u8> {
    [&[0, 0, 0, 0, 2, 119][..], &name_of(target)].concat()
}

fn response(records: &[Vec<u8>]) -> Vec<u8> {
    let header = vec![0, 0, 0x84, 0, 0, 0, 0, records.len() as u8, 0, 0, 0, 0];
    [header, records.concat()].concat()
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(name_of(name));
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0x80, 1]);
    bytes
}

fn printer() -> Vec<Vec<u8>> {
    vec![
        entry("_ipp._tcp.local", PTR, &name_of("Hall._ipp._tcp.local")),
        entry("Hall._ipp._tcp.local", SRV, &srv("printer.local")),
        entry("Hall._ipp._tcp.local", TXT, b"\x04a=bc"),
        entry("printer.local", A, &[192, 168, 1, 9]),
    ]
}

#[test]
fn chosen_services_are_told_with_their_machines_and_all_else_is_left_out() {
    let mut reflector = reflector();
    let others = [
        entry("_ssh._tcp.local", PTR, &name_of("Nas._ssh._tcp.local")),
        entry("Nas._ssh._tcp.local", SRV, &srv("nas.local")),
        entry("nas.local", A, &[192, 168, 1, 3]),
        entry("_services._dns-sd._udp.local", PTR, &name_of("_ssh._tcp.local")),
        entry("printer.local", 47, b"\0"),
    ];
    let mixed: Vec<Vec<u8>> = printer().into_iter().chain(others.clone()).collect();
    assert_eq!(reflector.handle(&response(&mixed), 0), Ok(response(&printer())));
    assert_eq!(reflector.handle(&response(&others), 0), Err(Kept::Others));
}

#[test]
fn addresses_that_lead_nowhere_beyond_their_link_are_left_out() {
    let mut reflector = reflector();
    let six = |first: [u8; 2]| entry("printer.local", AAAA, &[&first[..], &[9; 14]].concat());
    let told = [&printer()[..], &[six([0xfd, 5]), six([0xfe, 0xc0])]].concat();
    let near = [six([0xfe, 0x80]), six([0xfe, 0xbf]), entry("printer.local", A, &[169, 254, 1, 9])];
    let all = [&told[..], &near].concat();
    assert_eq!(reflector.handle(&response(&all), 0), Ok(response(&told)));
    assert_eq!(reflector.handle(&response(&near), 0), Err(Kept::Others), "nothing is left");
}

#[test]
fn questions_for_chosen_services_and_for_their_machines_pass_to_all() {
    let mut reflector = reflector();
    for (name, kind, passes) in [
        ("_ipp._tcp.local", PTR, true),
        ("_printer._sub._IPP._tcp.local", PTR, true),
        ("Hall._ipp._tcp.local", SRV, true),
        ("_services._dns-sd._udp.local", PTR, true),
        ("_ssh._tcp.local", PTR, false),
        ("printer.local", A, false),
    ] {
        let told = reflector.handle(&question(name, kind), 0);
        assert_eq!(told.is_ok(), passes, "{name}");
        if let Ok(told) = told {
            let len = told.len();
            assert_eq!(told[len - 2..], [0, 1], "everybody hears the answer");
            assert_eq!(told[..2], [0, 0], "RFC 6762 section 18.1");
        }
    }
    reflector.handle(&response(&printer()), 0).unwrap();
    assert!(reflector.handle(&question("PRINTER.local", A), 0).is_ok(), "a service is on it");
}

#[test]
fn nothing_goes_in_a_circle_and_what_is_repeated_later_is_told_again() {
    let (mut one, mut two) = (reflector(), reflector());
    let heard = response(&printer());
    let told = one.handle(&heard, 1000).unwrap();
    let back = two.handle(&told, 1001).unwrap();
    assert_eq!(one.handle(&back, 1002), Err(Kept::Again));
    assert_eq!(two.handle(&heard, 1002), Err(Kept::Again));
    assert_eq!(one.handle(&heard, 2000), Ok(told));
}

#[test]
fn pointers_are_written_out_and_those_that_lead_nowhere_are_refused() {
    // The printer's service with the names of the question's form in pointers.
    let mut bytes = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    bytes.extend(name_of("_ipp._tcp.local"));
    bytes.extend([0, 12, 0x80, 1, 0, 0, 0, 120, 0, 7, 4]);
    bytes.extend(b"Hall\xc0\x0c");
    let told = reflector().handle(&bytes, 0).unwrap();
    assert_eq!(told, response(&printer()[..1]));
    for at in [12_u8, 40, 255] {
        let mut wrong = bytes.clone();
        let last = wrong.len() - 1;
        wrong[12] = 0xc0;
        wrong[13] = at;
        wrong[last] = at;
        assert_eq!(reflector().handle(&wrong, 0), Err(Kept::Malformed), "{at}");
    }
}

#[test]
fn memory_and_messages_have_bounds() {
    let mut reflector = reflector();
    for number in 0..2 * HOSTS_MAX {
        let host = format!("h{number}.local");
        let record = entry(&format!("x{number}._ipp._tcp.local"), SRV, &srv(&host));
        assert!(reflector.handle(&response(&[record]), 0).is_ok());
    }
    assert_eq!((reflector.hosts.len(), reflector.recent.len()), (HOSTS_MAX, RECENT_MAX));
    let long = entry("Hall._ipp._tcp.local", TXT, &[1; 1300]);
    assert_eq!(reflector.handle(&response(&[long]), 0), Err(Kept::Long));
    let many = vec![entry("a._ipp._tcp.local", TXT, b""); ENTRIES_MAX + 1];
    assert_eq!(reflector.handle(&response(&many), 0), Err(Kept::Malformed));
}

#[test]
fn services_are_named_as_they_are_registered() {
    for text in ["_ipp._tcp", "_ros-master._tcp", "_a._udp"] {
        assert_eq!(text.parse::<Service>().unwrap().to_string(), text);
    }
    for text in ["", "ipp._tcp", "_ipp", "_ipp._sctp", "x._ipp._tcp", "_._tcp", "_i p._tcp"] {
        assert!(text.parse::<Service>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_told_is_a_message_and_telling_it_again_changes_nothing(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in 0_usize..300, with in any::<u8>(),
    ) {
        let _ = reflector().handle(&bytes, 0);
        bytes = response(&printer());
        let place = at % bytes.len();
        bytes[place] = with;
        if let Ok(told) = reflector().handle(&bytes, 0) {
            prop_assert!(told.len() <= MESSAGE_LEN_MAX);
            prop_assert_eq!(reflector().handle(&told, 0), Ok(told.clone()));
        }
    }
}
