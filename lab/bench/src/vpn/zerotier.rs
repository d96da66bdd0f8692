//! ZeroTier with a controller and a root of its own: the first host is both. The public roots are
//! known to the program and out of reach.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    Address, Daemon, End, Member, Vpn, find, first_line, has_address, inner, make, needs, place,
    program, run_dir,
};

const IFNAME: &str = "zt0";
const PORT: &str = "9993";
/// The part of a network's id that its controller chooses.
const NETWORK: &str = "000001";

/// ZeroTier One, which is its own tool for identities and its own client.
#[derive(Debug)]
pub(super) struct ZeroTier(Option<PathBuf>);

impl ZeroTier {
    pub(super) fn find() -> Self {
        Self(find("zerotier-one"))
    }
}

impl Vpn for ZeroTier {
    fn name(&self) -> &str {
        "ZeroTier"
    }

    fn word(&self) -> &str {
        "zerotier"
    }

    fn version(&self) -> Result<String> {
        needs("curl", "curl")?;
        let version = first_line(program(&self.0, "zerotier-one")?, &["-v"])?;
        Ok(format!("zerotier-one {version}"))
    }

    fn install_hint(&self) -> &str {
        "put zerotier-one with a controller in it (1.14, or a newer one built so) on PATH, or name \
         it in WARREN_BENCH_ZEROTIER_ONE; no registry of packages has it"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP, directly between hosts; layer 2; its MTU of 2800 puts two packets on the wire \
         for one of its own"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let zerotier = program(&self.0, "zerotier-one")?;
        let mut ids = Vec::new();
        for end in ends {
            ids.push(identity(end, zerotier)?);
        }
        let network = format!("{}{NETWORK}", ids[0]);
        let (moon_name, moon) = moon(&ends[0], zerotier)?;
        let mut members = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let home = run_dir(end)?.join("zt");
            std::fs::create_dir_all(home.join("moons.d"))?;
            std::fs::write(home.join("moons.d").join(&moon_name), &moon)?;
            place(end, "zt/local.conf", &settings().to_string())?;
            place(end, "zt/devicemap", &format!("{network}={IFNAME}\n"))?;
            // It joins what it has a file of.
            place(end, &format!("zt/networks.d/{network}.conf"), "")?;
            let mut daemon = Daemon {
                ready: has_address(IFNAME, &inner(i)),
                ..Daemon::new(&[zerotier, &format!("-p{PORT}"), "/run/zt"])
            };
            if i == 0 {
                // The network is made where its controller runs, and then joined at once.
                let ask = format!("{zerotier} -q -D/run/zt -p{PORT}");
                daemon.ready = format!("{ask} info | grep -q '^200 '");
                daemon.after = controller(&ask, &network, &ids);
            }
            members.push(Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![daemon],
                address: Address::Known(inner(i)),
                settled: String::new(),
            });
        }
        Ok(members)
    }
}

/// What keeps it off everything but UDP between the hosts.
fn settings() -> Value {
    json!({"settings": {
        "portMappingEnabled": false,
        "allowTcpFallbackRelay": false,
        "softwareUpdate": "disable",
    }})
}

/// Makes the keys of a host; its address, ten digits of hex.
fn identity(end: &End, zerotier: &str) -> Result<String> {
    let home = run_dir(end)?.join("zt");
    std::fs::create_dir_all(home.join("networks.d"))?;
    make(&home, &[zerotier, "-i", "generate", "identity.secret", "identity.public"])?;
    let public = std::fs::read_to_string(home.join("identity.public"))?;
    let id = public.split(':').next().filter(|id| id.len() == 10);
    Ok(id.context("zerotier-one made an identity without an address")?.to_owned())
}

/// Makes the first host a root: the name of the file that tells of it, and what is in it.
fn moon(first: &End, zerotier: &str) -> Result<(String, Vec<u8>)> {
    let home = run_dir(first)?.join("zt");
    let text = make(&home, &[zerotier, "-i", "initmoon", "identity.public"])?;
    let mut world: Value = serde_json::from_str(&text).context("initmoon printed no JSON")?;
    world["roots"][0]["stableEndpoints"] = json!([format!("{}/{PORT}", first.outer)]);
    place(first, "zt/moon.json", &world.to_string())?;
    make(&home, &[zerotier, "-i", "genmoon", "moon.json"])?;
    let is_moon = |path: &Path| path.extension().is_some_and(|ending| ending == "moon");
    let mut made = std::fs::read_dir(&home)?.filter_map(|entry| Some(entry.ok()?.path()));
    let path = made.find(|path| is_moon(path)).context("genmoon made no file")?;
    let name = path.file_name().context("it has a name")?.to_string_lossy().into_owned();
    Ok((name, std::fs::read(path)?))
}

/// Makes the network and lets the hosts in; once more changes nothing.
fn controller(ask: &str, network: &str, ids: &[String]) -> String {
    let about = json!({
        "private": false,
        "v4AssignMode": {"zt": true},
        "routes": [{"target": "10.10.0.0/24"}],
        "ipAssignmentPools": [{"ipRangeStart": "10.10.0.1", "ipRangeEnd": "10.10.0.250"}],
    });
    let at = format!("http://127.0.0.1:{PORT}/controller/network/{network}");
    let tell = r#"curl -fsS -o /dev/null -H "X-ZT1-Auth: $(cat /run/zt/authtoken.secret)""#;
    let mut script = format!("{tell} -d '{about}' {at}\n");
    for (i, id) in ids.iter().enumerate() {
        let member = json!({"authorized": true, "ipAssignments": [inner(i)]});
        script += &format!("{tell} -d '{member}' {at}/member/{id}\n");
    }
    let own = has_address(IFNAME, &inner(0));
    script + &format!("{ask} join {network} >/dev/null\nuntil {own}; do sleep 0.05; done\n")
}
