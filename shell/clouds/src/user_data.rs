//! What a gateway's machine does when it first starts, as cloud-init reads it.
//!
//! The program comes with the image, or from the address that the site file names; its digest is
//! that of the program that runs here. The join key is good for one node and a quarter of an hour,
//! lies in a file that root alone reads, and is removed when it was used.

use core::net::Ipv4Addr;

use sites::{File, TAG_FILE};

use crate::{Lead, machine};

/// Bytes that every provider takes.
pub const USER_DATA_BYTES_MAX: usize = 16 * 1024;
/// Where the key lies until it is used.
pub(crate) const KEY_FILE: &str = "/run/warren-site.key";
/// What joins.
pub(crate) const JOIN_FILE: &str = "/run/warren-site-join";

/// A gateway that is to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start<'s> {
    /// Its node's name.
    pub name: &'s str,
    /// What it offers to route.
    pub routes: &'s str,
    /// By which it is known as ours.
    pub tag: &'s str,
    /// The join key.
    pub token: &'s str,
    /// The hexadecimal SHA-256 of the program.
    pub digest: &'s str,
    /// Whose routes it sets to itself, in a pair whose machines have a role.
    pub lead: Option<&'s Lead>,
    /// The address that it shares with its pair's other one.
    pub shared: Option<Ipv4Addr>,
}

/// The user data of a gateway.
#[must_use]
pub fn user_data(file: &File, start: &Start<'_>) -> String {
    let join = script(file, start);
    let files = [
        (TAG_FILE, "0644", start.tag),
        (KEY_FILE, "0600", start.token),
        (JOIN_FILE, "0700", join.as_str()),
    ];
    cloud_config(&[], &files)
}

/// What cloud-init installs and writes, each file with its mode; then it runs [`JOIN_FILE`].
pub(crate) fn cloud_config(packages: &[&str], files: &[(&str, &str, &str)]) -> String {
    let mut text = "#cloud-config\n".to_owned();
    if !packages.is_empty() {
        text += &format!("package_update: true\npackages: [{}]\n", packages.join(", "));
    }
    text += "write_files:\n";
    for (path, mode, content) in files {
        text += &format!("- path: {path}\n  permissions: '{mode}'\n  content: |\n");
        for line in content.lines() {
            text += &if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        }
    }
    text += &format!("runcmd:\n- [sh, {JOIN_FILE}]\n");
    text
}

/// What runs on the machine, once.
fn script(file: &File, start: &Start<'_>) -> String {
    let program = &file.program;
    let Start { name, routes, digest, lead, shared, .. } = start;
    let address = |address: Ipv4Addr| format!(" --shared-address {address}");
    let shared = Lead::flag(*lead) + &shared.map(address).unwrap_or_default();
    let download = file.download.as_ref().map_or_else(String::new, |url| {
        format!(
            "if ! echo '{digest}  {program}' | sha256sum -c - >/dev/null 2>&1; then
mkdir -p \"$(dirname {program})\"
curl -fsSL --retry 5 --max-time 300 -o {program}.new '{url}'
echo '{digest}  {program}.new' | sha256sum -c - >/dev/null
chmod 755 {program}.new
mv {program}.new {program}
fi
"
        )
    });
    format!(
        "#!/bin/sh
set -eu
{download}if [ ! -x {program} ]; then
echo 'warren: the image has no {program}; write download = in the site file' >&2
exit 1
fi
{}{program} up - --timeout 60s --hostname {name} --advertise-routes {routes} \\
  --accept-routes --accept-dns=false --site-gateway{shared} <{KEY_FILE}
rm -f {KEY_FILE}
",
        machine::start(file)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Start<'_> = Start {
        name: "acme-a-gw1",
        routes: "10.1.0.0/24",
        tag: "{\"network\":\"acme\"}",
        token: "warren-join-abc",
        digest: "00",
        lead: None,
        shared: None,
    };

    fn file(more: &str) -> File {
        let text = format!(
            "network = \"acme\"\n{more}[[site]]\nname = \"a\"\nprovider = \"aws\"\nregion = \"r\"\n"
        );
        File::read(&text).unwrap()
    }

    #[test]
    fn user_data_is_one_that_a_shell_can_run_and_every_provider_takes() {
        for more in ["", "download = \"https://example.com/warren-x86_64\"\n"] {
            let file = file(more);
            let script = script(&file, &START);
            let checked = std::process::Command::new("sh").args(["-nc", &script]).output().unwrap();
            assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}\n{script}");
            let text = user_data(&file, &START);
            assert!(text.starts_with("#cloud-config\n") && text.len() < USER_DATA_BYTES_MAX / 2);
            assert_eq!(script.contains("curl"), !more.is_empty());
            // The key is in its own file and in no command, which a list of processes would show.
            assert_eq!(text.matches(START.token).count(), 1);
        }
        // Of a pair with a role each gateway is told whose routes it sets.
        let lead: Lead = "aws,r,acme,a,10.1.0.254,10.1.0.253,https://h:9".parse().unwrap();
        let script = script(&file(""), &Start { lead: Some(&lead), ..START });
        let checked = std::process::Command::new("sh").args(["-nc", &script]).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}\n{script}");
        assert!(script.contains(&format!(" --shared-routes '{lead}' <")), "{script}");
    }

    #[test]
    fn source_001_14_a_gateway_is_told_the_address_that_its_pair_shares() {
        let shared = Some(Ipv4Addr::new(10, 3, 0, 252));
        let script = script(&file(""), &Start { shared, ..START });
        assert!(script.contains(" --site-gateway --shared-address 10.3.0.252 <"), "{script}");
    }
}
