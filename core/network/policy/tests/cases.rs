//! Files as their users have them, of Tailscale and Headscale: each is taken, or refused for what
//! it says, and what means less here is told at its line.

#![expect(clippy::unwrap_used, reason = "all of it is tests")]
#![expect(clippy::disallowed_methods, reason = "the cases are files")]

use policy::{Directory, Finding, Policy, check};

/// Reads a case and checks it where no directory is known: all warnings, or all mistakes.
fn checked(name: &str) -> Result<Vec<String>, Vec<String>> {
    let told = |findings: Vec<Finding>| findings.iter().map(Finding::to_string).collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/");
    let bytes = std::fs::read(format!("{folder}{name}")).unwrap();
    let (policy, warnings) = Policy::parse(&bytes).map_err(told)?;
    let compiled = check(&policy, &Directory::default()).map_err(told)?;
    Ok(told(warnings.into_iter().chain(compiled.remarks()).collect()))
}

/// What is told of each file that is taken: where a line of the answer begins, and what is in it.
const TAKEN: [(&str, &[(&str, &str)]); 24] = [
    ("demo-self-ssh.hujson", &[("14:2", "\"ssh\" is not enforced")]),
    ("robot-club.hujson", &[("3:2", "\"ssh\""), ("4:2", "\"nodeAttrs\"")]),
    (
        "k8s-operator.hujson",
        &[
            ("3:2", "randomizeClientPort"),
            ("5:2", "ssh"),
            ("16:3", "services"),
            ("20:69", "capabilities of applications"),
            ("22:2", "nodeAttrs"),
        ],
    ),
    ("headscale-exit.hujson", &[("3:53", "\"autogroup:internet\" cannot own anything")]),
    ("allow-all.hujson", &[("2:13", "* in dst means nodes")]),
    ("users-ports.hujson", &[]),
    ("company-hosts.hujson", &[("16:2", "nodeAttrs"), ("9:3", "* in src means nodes")]),
    ("bgp-v6.hujson", &[("4:66", "capabilities"), ("12:2", "nodeAttrs"), ("14:2", "sshTests")]),
    ("icmp-test.hujson", &[("5:12", "autogroup:internet")]),
    ("ipsets.hujson", &[]),
    (
        "everything-new.hujson",
        &[
            ("5:2", "postures"),
            ("8:66", "\"via\" is not enforced, so this rule is left out"),
            ("9:58", "\"srcPosture\" is not enforced, so this rule is left out"),
            ("10:35", "\"svc:tcp\" names a service"),
            ("11:77", "capabilities"),
            ("13:20", "services"),
            ("14:2", "attrConfig"),
        ],
    ),
    ("ha-meta.hujson", &[("6:6", "\"#ha-meta\" is passed over"), ("8:3", "ssh")]),
    (
        "headscale-small-business.hujson",
        &[
            ("3:30", "write chief@"),
            ("3:54", "write dev1@"),
            ("3:62", "write dev2@"),
            ("3:88", "write intern1@"),
            ("5:60", "\"10.20.10.1/29\" means 10.20.10.0/29"),
            ("10:35", "\"dev1\" is read as a user"),
            ("10:52", "\"dev1\" is read as a user"),
        ],
    ),
    ("headscale-small-business-at.hujson", &[("5:60", "10.20.10.0/29")]),
    ("exit-by-cidr.hujson", &[]),
    ("devices-tests.hujson", &[("5:3", "* in dst means nodes")]),
    ("site-to-site.hujson", &[]),
    ("site-to-site-crlf.hujson", &[]),
    ("site-to-site-bom.hujson", &[]),
    ("protos.hujson", &[("4:5", "* in dst means nodes")]),
    ("proto-number.hujson", &[("1:13", "* in dst means nodes")]),
    (
        "synced-group.hujson",
        &[("3:29", "\"group:security@corp.example\" has the members that an identity provider")],
    ),
    ("relay-and-nodeattr-ip.hujson", &[]),
    ("rare-words.hujson", &[("3:23", "\"autogroup:guest\" means nobody here")]),
];

/// And of each that is refused.
const REFUSED: [(&str, &str); 2] = [
    ("yaml.yaml", "1:1: the bare word \"tagOwners\": a policy is HuJSON and begins with {"),
    // The file's own test denies what its only rule allows, in Tailscale as well.
    ("default-test-uncommented.hujson", "\"100.101.102.103:443\" must not be reached"),
];

#[test]
fn files_of_real_users_are_taken_and_told_line_by_line() {
    for (name, expected) in TAKEN {
        let told = checked(name).unwrap_or_else(|faults| panic!("{name}: {faults:#?}"));
        assert_eq!(told.len(), expected.len(), "{name}: {told:#?}");
        for (told, (place, what)) in told.iter().zip(expected) {
            assert!(told.starts_with(&format!("{place}: ")), "{name}, {place}: {told}");
            assert!(told.contains(what), "{name}, {what}: {told}");
        }
    }
}

#[test]
fn what_is_refused_says_why_and_every_case_is_tried() {
    for (name, what) in REFUSED {
        let faults = checked(name).expect_err(name);
        assert!(faults[0].contains(what), "{name}: {faults:#?}");
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, TAKEN.len() + REFUSED.len());
}
