//! Gateways that run strongSwan or OpenVPN: the scripts by which they are made, watched and taken
//! away. What is written here runs on machines of others, as root.

use sites::{Backend, File, TAG_FILE, Text, openvpn_folder};

use crate::authority::Identity;
use crate::machine::BEGIN;
use crate::user_data::{JOIN_FILE, KEY_FILE, cloud_config};

/// What starts the programs and starts them again when they end.
const WATCH: &str = "/etc/warren-tunnels.sh";
/// Its process, where no systemd looks after it.
const WATCH_PID: &str = "/run/warren-tunnels.pid";
/// The script that makes a machine at a cloud the gateway.
const MAKE_FILE: &str = "/run/warren-site-make";
/// Whether the machine passed packets on before.
const FORWARDED: &str = "/run/warren-tunnels.forwarded";
const UNIT: &str = "[Unit]
Description=Tunnels of warren sites
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/bin/sh /etc/warren-tunnels.sh
Restart=always

[Install]
WantedBy=multi-user.target
";

/// Where the certificates go: the authority's, the gateway's, its key.
fn places(file: &File, backend: Backend) -> [String; 3] {
    let network = &file.network;
    let folder = openvpn_folder(file);
    match backend {
        Backend::OpenVpn => ["authority", "own", "key"].map(|name| format!("{folder}/{name}.pem")),
        _ => ["x509ca", "x509", "private"]
            .map(|at| format!("/etc/swanctl/{at}/warren-{network}.pem")),
    }
}

/// What cloud-init installs for it.
const fn packages(backend: Backend) -> &'static [&'static str] {
    match backend {
        Backend::OpenVpn => &["openvpn"],
        _ => &["charon-systemd", "strongswan-swanctl"],
    }
}

/// The user data of a gateway at a cloud: what it needs is installed, then [`make`]'s `script`
/// makes it one, with its key on standard input.
pub(crate) fn user_data(backend: Backend, script: &str, key: &str) -> String {
    let run =
        format!("#!/bin/sh\nset -eu\nsh {MAKE_FILE} <{KEY_FILE}\nrm -f {KEY_FILE} {MAKE_FILE}\n");
    let files =
        [(KEY_FILE, "0600", key), (MAKE_FILE, "0700", script), (JOIN_FILE, "0700", run.as_str())];
    cloud_config(packages(backend), &files)
}

/// Refuses a machine without the program, and says how to get it.
const fn needed(backend: Backend) -> &'static str {
    match backend {
        Backend::OpenVpn => {
            "command -v openvpn >/dev/null || {
  echo 'there is no openvpn: apt-get install openvpn' >&2; exit 1
}
"
        }
        _ => {
            "command -v swanctl >/dev/null || {
  echo 'there is no swanctl: apt-get install charon-systemd strongswan-swanctl' >&2; exit 1
}
"
        }
    }
}

/// What runs for ever: it starts the programs, and starts them again.
fn watch(file: &File, backend: Backend) -> String {
    let carriers = match backend {
        // A charon of others is used as it is, for there can be but one.
        Backend::Ipsec => "charon=$(command -v charon || command -v charon-systemd || true)
for at in /usr/lib/ipsec/charon /usr/libexec/ipsec/charon; do
  if [ -z \"$charon\" ] && [ -x $at ]; then charon=$at; fi
done
while :; do
  if ! swanctl --stats >/dev/null 2>&1; then
    \"$charon\" >/run/warren-charon.log 2>&1 &
  fi
  until swanctl --load-all >/run/warren-swanctl.log 2>&1; do sleep 0.2; done
  while swanctl --stats >/dev/null 2>&1; do sleep 2; done
done
"
        .to_owned(),
        Backend::OpenVpn | Backend::Warren => format!(
            "for at in {}/*.conf; do
  (
    while :; do
      openvpn --config $at >/run/warren-openvpn-$(basename $at).log 2>&1 || true
      sleep 1
    done
  ) &
done
wait
",
            openvpn_folder(file)
        ),
    };
    // Also after the machine's own restart.
    format!("{}{carriers}", forward())
}

/// Has the machine pass packets on, and keeps whether it did before.
fn forward() -> String {
    format!(
        "if [ ! -e {FORWARDED} ]; then cat /proc/sys/net/ipv4/ip_forward > {FORWARDED}; fi
echo 1 > /proc/sys/net/ipv4/ip_forward
"
    )
}

/// Makes a machine the gateway; the key comes on standard input.
pub(crate) fn make(
    file: &File,
    backend: Backend,
    texts: &[Text],
    authority: &str,
    identity: &Identity,
    tag: &str,
) -> String {
    let mut script = format!("{BEGIN}umask 077\n{}{}", needed(backend), stop());
    if backend == Backend::OpenVpn {
        // The last gateway has no client, and its server looks for the folder all the same.
        script += &format!("mkdir -p {}/clients\n", openvpn_folder(file));
    }
    let [ca, own, key] = places(file, backend);
    let mut write = |path: &str, text: &str| {
        let end = text.trim_end();
        script += &format!("mkdir -p $(dirname {path})\ncat > {path} <<'WARREN'\n{end}\nWARREN\n");
    };
    write(&ca, authority);
    write(&own, &identity.certificate);
    for Text { path, text } in texts {
        write(path, text);
    }
    write(WATCH, &watch(file, backend));
    script
        + &format!(
            "mkdir -p $(dirname {key})
cat > {key}
{}printf '%s\\n' '{tag}' > {TAG_FILE}
if [ -d /run/systemd/system ]; then
  cat > /etc/systemd/system/warren-tunnels.service <<'UNIT'
{UNIT}UNIT
  systemctl daemon-reload
  systemctl enable warren-tunnels.service
  systemctl restart warren-tunnels.service
else
  setsid -f sh -c 'echo $$ > {WATCH_PID}; exec sh {WATCH}' </dev/null >/dev/null 2>&1 9>&-
  for i in $(seq 100); do [ ! -s {WATCH_PID} ] || break; sleep 0.1; done
fi
",
            forward()
        )
}

/// Ends the watch and what it started.
const fn stop() -> &'static str {
    "if [ -e /run/warren-tunnels.pid ]; then
  kill -- -$(cat /run/warren-tunnels.pid) 2>/dev/null || true
  for i in $(seq 50); do
    if ! kill -0 -- -$(cat /run/warren-tunnels.pid) 2>/dev/null; then break; fi
    sleep 0.1
  done
  rm -f /run/warren-tunnels.pid
elif [ -e /etc/systemd/system/warren-tunnels.service ]; then
  systemctl disable --now warren-tunnels.service 2>/dev/null || true
  rm -f /etc/systemd/system/warren-tunnels.service
  systemctl daemon-reload
fi
"
}

/// Takes everything of it away.
pub(crate) fn remove(file: &File) -> String {
    let network = &file.network;
    let swanctl = places(file, Backend::Ipsec).join(" ");
    format!(
        "{BEGIN}{}rm -f {swanctl} /etc/swanctl/conf.d/warren-{network}.conf {WATCH}
if command -v swanctl >/dev/null; then swanctl --load-all >/dev/null 2>&1 || true; fi
rm -rf {} /run/warren-openvpn-* /run/warren-charon.log /run/warren-swanctl.log
if [ -e {FORWARDED} ]; then cat {FORWARDED} > /proc/sys/net/ipv4/ip_forward; fi
rm -f {FORWARDED} {TAG_FILE}
",
        stop(),
        openvpn_folder(file)
    )
}

/// Prints whether the programs run, and to whom there is a tunnel: part of a look at a machine.
pub(crate) fn look(file: &File) -> String {
    let folder = openvpn_folder(file);
    format!(
        "if [ -e {WATCH} ]; then
  if [ -e {folder}/server.conf ]; then
    for at in {folder}/client-*.conf; do
      [ -e $at ] || continue
      device=$(sed -n 's/^dev //p' $at)
      if ip -4 route show dev $device 2>/dev/null | grep -q via; then
        echo \"tunnel $(basename $at .conf | cut -c8-)\"
      fi
    done
    status=/run/warren-openvpn-{}-server.status
    sed -n 's/^CLIENT_LIST,\\([^,]*\\),.*/tunnel \\1/p' $status 2>/dev/null
    if [ -e $status ]; then echo 'backend running'; fi
  elif swanctl --stats >/dev/null 2>&1; then
    echo 'backend running'
    swanctl --list-sas 2>/dev/null | sed -n 's/^  \\([^ :]*\\): #.*INSTALLED.*/tunnel \\1/p'
  fi
fi
",
        file.network
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_one_that_sh_can_read() {
        let text = "network = \"n\"\n[[site]]\nname = \"a\"\nprovider = \"ssh\"\nhosts = [\"h\"]\n";
        let file = File::read(text).unwrap();
        let texts = [Text { path: "/etc/x".to_owned(), text: "it's $HOME\n".to_owned() }];
        let identity = Identity { certificate: "c".to_owned(), key: "k".to_owned() };
        for script in [
            make(&file, Backend::Ipsec, &texts, "a", &identity, "{}"),
            make(&file, Backend::OpenVpn, &texts, "a", &identity, "{}"),
            watch(&file, Backend::Ipsec),
            watch(&file, Backend::OpenVpn),
            remove(&file),
            look(&file),
        ] {
            let checked = std::process::Command::new("sh").args(["-nc", &script]).output().unwrap();
            assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}\n{script}");
        }
        let data = user_data(Backend::Ipsec, "set -eu\necho 1\n", "the key");
        assert!(data.contains("packages: [charon-systemd, strongswan-swanctl]\n"), "{data}");
        assert!(data.contains("0600'\n  content: |\n    the key\n"), "{data}");
        assert_eq!(data.matches("the key").count(), 1, "in its own file and in no command");
    }
}
