//! One machine of an `ssh` site: the scripts that run on it, and what they print.

use std::collections::BTreeMap;

use serde_json::Value;
use sites::{File, PROTOCOL, TAG_FILE};

/// What was found on a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Facts {
    /// The tag of a gateway of ours.
    pub(crate) tag: Option<Tag>,
    /// The digest of the program.
    pub(crate) digest: String,
    /// What `warren status --json` says.
    pub(crate) status: Value,
    /// Interfaces that pass packets on.
    pub(crate) forwards: Vec<String>,
    /// Addresses with their interfaces.
    pub(crate) addresses: BTreeMap<String, String>,
    /// Routes to networks of sites: to, via, whether it is ours.
    pub(crate) routes: Vec<(String, String, bool)>,
    /// Whether the program of another backend runs.
    pub(crate) runs: bool,
    /// Gateways to which it has a tunnel.
    pub(crate) reaches: Vec<String>,
}

/// What stands in the file by which a machine is known as ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    pub(crate) network: String,
    pub(crate) site: String,
    pub(crate) number: Option<u32>,
    /// Whether the program was put there by us.
    pub(crate) installed: bool,
    /// What was made of another backend, if it is one.
    pub(crate) foreign: Option<Foreign>,
}

/// What was made on a gateway of another backend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Foreign {
    /// The backend's word.
    pub(crate) backend: String,
    /// The mark of its configuration.
    pub(crate) config: String,
    /// The mark of the authority.
    pub(crate) authority: String,
}

/// Looks at a machine and changes nothing.
pub(crate) fn look(file: &File) -> String {
    let program = &file.program;
    format!(
        "set -u
if [ \"$(id -u)\" != 0 ]; then
  echo 'log in as root: routes and interfaces are changed' >&2
  exit 77
fi
echo \"tag $(cat {TAG_FILE} 2>/dev/null | tr -d '\\n')\"
if [ -x {program} ]; then
  echo \"digest $(sha256sum {program} | cut -c1-64)\"
  echo \"status $({program} status --json 2>/dev/null | tr -d '\\n')\"
fi
for at in /proc/sys/net/ipv4/conf/*; do
  echo \"forwards ${{at##*/}} $(cat $at/forwarding)\"
done
ip -4 -o addr show | while read -r _ name _ address _; do echo \"address $name $address\"; done
ip -4 route show | while read -r line; do echo \"route $line\"; done
"
    )
}

/// What [`look`] printed.
pub(crate) fn read(text: &str) -> Facts {
    let mut facts = Facts::default();
    for line in text.lines() {
        let Some((word, rest)) = line.split_once(' ') else { continue };
        match word {
            "tag" => facts.tag = tag(rest),
            "digest" => rest.trim().clone_into(&mut facts.digest),
            "status" => facts.status = serde_json::from_str(rest).unwrap_or_default(),
            "forwards" => {
                if let Some((name, "1")) = rest.split_once(' ') {
                    facts.forwards.push(name.to_owned());
                }
            }
            "address" => {
                if let Some((name, address)) = rest.split_once(' ') {
                    let address = address.split('/').next().unwrap_or_default();
                    facts.addresses.insert(address.to_owned(), name.to_owned());
                }
            }
            "route" => facts.routes.extend(route(rest)),
            "backend" => facts.runs = rest == "running",
            "tunnel" => facts.reaches.push(rest.to_owned()),
            _ => {}
        }
    }
    facts
}

fn tag(text: &str) -> Option<Tag> {
    let value: Value = serde_json::from_str(text).ok()?;
    let number = value["number"].as_u64().and_then(|number| number.try_into().ok());
    let word = |key: &str| value[key].as_str().map(str::to_owned);
    let installed = value["installed"] == true;
    let told = |key: &str| word(key).unwrap_or_default();
    let foreign = word("backend").map(|backend| Foreign {
        backend,
        config: told("config"),
        authority: told("authority"),
    });
    Some(Tag { network: word("network")?, site: word("site")?, number, installed, foreign })
}

/// A route through a gateway as `ip` prints it: `10.0.0.0/8 via 10.4.0.254 dev eth0 proto 158`.
fn route(line: &str) -> Option<(String, String, bool)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| {
        let at = words.iter().position(|known| *known == word)?;
        words.get(at + 1).copied()
    };
    let to = words.first().filter(|to| to.contains('/'))?;
    let is_ours = after("proto") == Some(&PROTOCOL.to_string());
    Some(((*to).to_owned(), after("via")?.to_owned(), is_ours))
}

/// Before every script that changes something: one at a time on a machine, and stop at once.
pub(crate) const BEGIN: &str = "set -eu\nexec 9>/run/warren-site.lock\nflock -w 60 9\n";

/// Puts the program, which comes on standard input, in its place.
pub(crate) fn install(file: &File, digest: &str, machine: &str, tag: &str) -> String {
    let program = &file.program;
    format!(
        "{BEGIN}if [ \"$(uname -m)\" != {machine} ]; then
  echo \"it is $(uname -m), and this program is for {machine}; run warren sites on such a one\" >&2
  exit 1
fi
mkdir -p \"$(dirname {program})\"
cat > {program}.new
echo '{digest}  {program}.new' | sha256sum -c - >/dev/null
chmod 755 {program}.new
mv {program}.new {program}
printf '%s\\n' '{tag}' > {TAG_FILE}
{}",
        restart(file)
    )
}

/// A daemon that runs the old program is ended; who needs it starts it again.
fn restart(file: &File) -> String {
    let program = &file.program;
    format!("if {program} status --json >/dev/null 2>&1; then\n{}{}fi\n", stop(), start(file))
}

/// Starts the daemon, by systemd where it runs.
pub(crate) fn start(file: &File) -> String {
    let File { program, state, .. } = file;
    let unit = include_str!("../../../packaging/warren.service");
    let unit = unit.replace("/usr/local/bin/warren", program);
    format!(
        "if ! {program} status --json >/dev/null 2>&1; then
if [ -d /run/systemd/system ] && [ {state} = /var/lib/warren-node ]; then
  cat > /etc/systemd/system/warren.service <<'UNIT'
{unit}UNIT
  systemctl daemon-reload
  systemctl enable --now warren.service
else
  mkdir -p {state}
  setsid -f sh -c 'echo $$ > /run/warren-site.pid; exec {program} daemon --state {state}' \\
    </dev/null >{state}/daemon.log 2>&1 9>&-
fi
for i in $(seq 100); do
  if {program} status --json >/dev/null 2>&1; then break; fi
  sleep 0.1
done
fi
"
    )
}

fn stop() -> &'static str {
    "if [ -e /run/warren-site.pid ]; then
  pid=$(cat /run/warren-site.pid)
  kill \"$pid\" 2>/dev/null || true
  for i in $(seq 100); do
    if ! kill -0 \"$pid\" 2>/dev/null; then break; fi
    sleep 0.1
  done
  rm -f /run/warren-site.pid
elif [ -d /run/systemd/system ]; then
  systemctl disable --now warren.service 2>/dev/null || true
  rm -f /etc/systemd/system/warren.service
  systemctl daemon-reload
fi
"
}

/// What a gateway is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member<'s> {
    /// Its node's name.
    pub(crate) name: &'s str,
    /// What it offers to route.
    pub(crate) routes: &'s str,
    /// Whether it passes on what sites send to each other.
    pub(crate) passes_on: bool,
    /// Through whom it reaches networks.
    pub(crate) through: &'s str,
    /// The address that it shares with the other one of its pair.
    pub(crate) shared: &'s str,
}

/// Runs the daemon and joins with the token on standard input; without one it stays who it is.
pub(crate) fn join(file: &File, member: Member<'_>, tag: &str, has_token: bool) -> String {
    let program = &file.program;
    let Member { name, routes, passes_on, through, shared } = member;
    let token = if has_token { "- " } else { "" };
    let flag = |flag: &str, words: &str| match words {
        "" => String::new(),
        words => format!(" {flag} {words}"),
    };
    let through = flag("--routes-through", through);
    let shared = flag("--shared-address", shared);
    let hub = if passes_on { " --site-hub" } else { "" };
    format!(
        "{BEGIN}if [ ! -e {TAG_FILE} ]; then printf '%s\\n' '{tag}' > {TAG_FILE}; fi
{}{program} up {token}--timeout 60s --reset --hostname {name} --advertise-routes {routes} \\
  --accept-routes --accept-dns=false --site-gateway{hub}{through}{shared} >/dev/null
",
        start(file)
    )
}

/// Leaves the shared address to the other gateway of a pair, which takes it meanwhile.
pub(crate) fn give_way(file: &File, address: &str) -> String {
    let program = &file.program;
    format!(
        "{BEGIN}{program} set --shared-address 0.0.0.0 >/dev/null
sleep 3
{program} set --shared-address {address} >/dev/null
"
    )
}

/// Leaves the network and takes away what joining made.
pub(crate) fn leave(file: &File) -> String {
    let File { program, state, .. } = file;
    format!(
        "{BEGIN}if [ -x {program} ]; then
{program} logout >/dev/null 2>&1 || true
fi
{}rm -rf {state}
rmdir /run/warren 2>/dev/null || true
if ! grep -q '\"installed\":true' {TAG_FILE} 2>/dev/null; then rm -f {TAG_FILE}; fi
",
        stop()
    )
}

/// Removes the program, if it was put there by us.
pub(crate) fn uninstall(file: &File) -> String {
    let program = &file.program;
    format!(
        "{BEGIN}if grep -q '\"installed\":true' {TAG_FILE} 2>/dev/null; then rm -f {program}; fi
rm -f {TAG_FILE}
"
    )
}

/// Sets a route of ours, and reads it back.
pub(crate) fn add_route(to: &str, via: &str) -> String {
    format!(
        "{BEGIN}ip -4 route replace {to} via {via} proto {PROTOCOL}
ip -4 route show to exact {to} | grep -q 'via {via} .*proto {PROTOCOL}'
"
    )
}

/// Removes a route of ours.
pub(crate) fn remove_route(to: &str) -> String {
    format!("{BEGIN}ip -4 route del {to} proto {PROTOCOL}\n")
}

/// Prints the interfaces that pass packets on.
pub(crate) const FORWARDS: &str = "for at in /proc/sys/net/ipv4/conf/*; do
  echo \"forwards ${at##*/} $(cat $at/forwarding)\"
done
ip -4 -o addr show | while read -r _ name _ address _; do echo \"address $name $address\"; done
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_prints_is_read_and_strange_lines_are_none() {
        let text = "tag {\"network\":\"acme\",\"site\":\"a\",\"number\":3,\"installed\":true}\n\
                    digest abc\nstatus {\"state\":\"running\"}\nforwards eth0 1\nforwards eth1 0\n\
                    address lo 127.0.0.1/8\naddress eth1 10.4.0.254/24\n\
                    route default via 10.4.0.1 dev eth1\n\
                    route 10.0.0.0/8 via 10.4.0.254 dev eth1 proto 158 \n\
                    route 10.7.0.0/16 via 10.4.0.9 dev eth1 proto static\nroute\n\n??? x\n";
        let facts = read(text);
        let tag = facts.tag.unwrap();
        assert_eq!((tag.network.as_str(), tag.site.as_str(), tag.number), ("acme", "a", Some(3)));
        assert_eq!(facts.status["state"], "running");
        assert_eq!(facts.forwards, ["eth0"]);
        assert_eq!(facts.addresses["10.4.0.254"], "eth1");
        let routes: Vec<(&str, &str, bool)> =
            facts.routes.iter().map(|(to, via, ours)| (to.as_str(), via.as_str(), *ours)).collect();
        assert_eq!(
            routes,
            [("10.0.0.0/8", "10.4.0.254", true), ("10.7.0.0/16", "10.4.0.9", false)]
        );
        assert_eq!(read("tag \nstatus nonsense\n"), Facts::default());
    }

    #[test]
    fn every_script_is_one_that_sh_can_read() {
        let text = "network = \"n\"\n[[site]]\nname = \"a\"\nprovider = \"ssh\"\nhosts = [\"h\"]\n";
        let file = File::read(text).unwrap();
        let [name, routes, through, shared] = ["n-a-gw1", "10.4.0.0/24", "", ""];
        let member = Member { name, routes, passes_on: false, through, shared };
        let hub = Member {
            passes_on: true,
            through: "10.0.0.0/8=n-b-gw1",
            shared: "10.4.0.252",
            ..member
        };
        for script in [
            look(&file),
            install(&file, "00", "x86_64", "{}"),
            join(&file, member, "{}", true),
            join(&file, hub, "{}", false),
            give_way(&file, "10.4.0.252"),
            leave(&file),
            uninstall(&file),
            add_route("10.0.0.0/8", "10.4.0.254"),
            remove_route("10.0.0.0/8"),
            FORWARDS.to_owned(),
        ] {
            let checked = std::process::Command::new("sh").args(["-nc", &script]).output().unwrap();
            assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}\n{script}");
        }
    }
}
