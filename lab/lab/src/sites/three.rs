//! Three sites of two application machines each, one server, and an Internet between them.
//!
//! ```text
//!   paris-1 ─┐           ┌─ paris-gw1 ─┐            ┌─ dublin ──── dublin-gw, dublin-1, dublin-2
//!            ├ paris-lan ┤             ├─ internet ─┤  (AWS)
//!   paris-2 ─┘           └─ paris-gw2 ─┘      │     └─ amsterdam ─ amsterdam-gw, amsterdam-1 …
//!                                          server      (Azure)
//! ```
//!
//! Paris is a pair of gateways that `ssh` reaches. Dublin and Amsterdam are clouds that are played;
//! the host of that name is both their API and their fabric. Where what plays a cloud is missing,
//! its site is one of `ssh` as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::{
    APPLY, AWS, AZURE, Port, Tools, boots, command, fabric, give_image, start, start_sshds,
};
use crate::netns::Host;
use crate::process::Process;
use crate::room::Room;
use crate::topology::Lab;

/// Where everybody finds the server.
pub const SERVER: &str = "198.51.100.254";
/// The network's name.
pub const NETWORK: &str = "acme";
/// Application machines of a site.
pub const MACHINES: u8 = 2;
/// What sites route to their gateways.
pub const RANGE: &str = "10.0.0.0/8";
const AWS_PORT: u16 = 9443;
const AZURE_PORT: u16 = 9600;

/// Who runs a site's machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Amazon, played by `cloud.py`.
    Aws,
    /// Microsoft, played by `arm.py`.
    Azure,
    /// Nobody: `ssh` reaches them.
    Ssh,
}

/// One site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: &'static str,
    /// Who runs it.
    pub provider: Provider,
    /// Its network, without the last part.
    pub net: String,
    /// Its gateways: one, or a pair.
    pub gateways: u8,
    /// The part of the outside addresses that is its own.
    outside: u8,
}

impl Site {
    /// The hosts of its gateways.
    #[must_use]
    pub fn gateway(&self, number: u8) -> String {
        match self.provider {
            Provider::Ssh => format!("{}-gw{number}", self.name),
            Provider::Aws | Provider::Azure => format!("{}-gw", self.name),
        }
    }

    /// The host of an application machine, from 1.
    #[must_use]
    pub fn machine(&self, number: u8) -> String {
        format!("{}-{number}", self.name)
    }

    /// Where that machine is.
    #[must_use]
    pub fn address(&self, number: u8) -> String {
        format!("{}.{}", self.net, self.last(number))
    }

    /// What the world calls a gateway.
    #[must_use]
    pub fn outside(&self, number: u8) -> String {
        format!("198.51.100.{}", self.outside + number)
    }

    /// The host of its network: a cloud, or what joins its machines.
    #[must_use]
    pub fn inner(&self) -> String {
        match self.provider {
            Provider::Ssh => format!("{}-lan", self.name),
            Provider::Aws | Provider::Azure => self.name.to_owned(),
        }
    }

    fn is_cloud(&self) -> bool {
        self.provider != Provider::Ssh
    }

    /// Clouds keep the first addresses of a network.
    fn last(&self, number: u8) -> u8 {
        if self.is_cloud() { 9 + number } else { number }
    }

    /// Where its cloud's API is.
    fn api(&self) -> String {
        format!("198.51.100.{}", self.outside + 9)
    }

    fn hosts(&self) -> Vec<String> {
        let gateways = (1..=self.gateways).map(|number| self.gateway(number));
        let machines = (1..=MACHINES).map(|number| self.machine(number));
        gateways.chain(machines).collect()
    }
}

/// Which sites there are with what is here.
///
/// # Errors
/// If there is no server of OpenSSH.
pub fn sites(tools: &Tools) -> Result<[Site; 3]> {
    ensure!(
        tools.sshd.is_some(),
        "three sites need sshd, not found here: run `make demo-sites`, or \
         `apt-get install openssh-server`"
    );
    let mut others = 0;
    let mut site = |name, cloud: Option<Provider>, outside: u8| {
        let provider = cloud.unwrap_or(Provider::Ssh);
        let net = match provider {
            Provider::Aws => "10.1.0".to_owned(),
            Provider::Azure => "10.2.0".to_owned(),
            // Numbers are given in the order of the file.
            Provider::Ssh => {
                others += 1;
                format!("10.4.{}", others - 1)
            }
        };
        let gateways = if outside == 10 { 2 } else { 1 };
        Site { name, provider, net, gateways, outside }
    };
    let aws = tools.moto.as_ref().map(|_| Provider::Aws);
    let azure = tools.yaml.as_ref().map(|_| Provider::Azure);
    Ok([site("paris", None, 10), site("dublin", aws, 20), site("amsterdam", azure, 30)])
}

/// Their hosts as a topology; what joins them is made by [`Three::build`].
#[must_use]
pub fn topology(sites: &[Site]) -> String {
    let mut text = "name = \"sites\"\n[hosts.server]\n[switches.internet]\n".to_owned();
    for site in sites {
        let kind = if site.is_cloud() { "hosts" } else { "switches" };
        text += &format!("[{kind}.{}]\n", site.inner());
        text.extend(site.hosts().iter().map(|host| format!("[hosts.{host}]\n")));
    }
    text
}

/// The sites as they stand: hosts that are joined, servers of `ssh` in them, files.
#[derive(Debug)]
pub struct Three {
    /// The sites, in the order of their file.
    pub sites: [Site; 3],
    tools: Tools,
    /// A folder for each host, below this one.
    folder: PathBuf,
    /// Machines that start now.
    starting: Vec<(String, Process)>,
    _sshds: Vec<Process>,
}

/// Something of a cloud that is to be started before the sites: in which host, what, and what it
/// prints when it is there.
pub type Stay = (String, String, &'static str);

/// An `apply` that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What it printed.
    pub said: String,
    /// How long it took.
    pub took: Duration,
}

impl Three {
    /// Joins the hosts of a [`topology`] and writes the files into `folder`, which has a folder
    /// for each host. `program` is what machines of clouds have in their image.
    ///
    /// # Errors
    /// If something is refused.
    pub fn build(
        lab: &Lab,
        sites: [Site; 3],
        tools: Tools,
        folder: &Path,
        program: &Path,
    ) -> Result<Self> {
        let internet = lab.host("internet")?;
        let mut ports = 0;
        let mut join = |host: &Host, addresses: &[&str]| -> Result<()> {
            ports += 1;
            let port = format!("p{ports}");
            lab.net().veth((internet, &port, &[]), (host, "wan0", addresses))?;
            internet.sh(&format!("ip link set {port} master br0")).map(drop)
        };
        join(lab.host("server")?, &[&format!("{SERVER}/24")])?;
        let mut behind_ssh = Vec::new();
        for site in &sites {
            if site.is_cloud() {
                let cloud = lab.host(&site.inner())?;
                let [public, api] = [site.outside(1), site.api()].map(|at| format!("{at}/24"));
                join(cloud, &[&public, &api])?;
                lay_cloud(lab, site, cloud)?;
                give_image(lab.host(&site.gateway(1))?, program)?;
                let own = if site.provider == Provider::Aws { AWS } else { AZURE };
                for (name, text) in own {
                    fs::write(folder.join(site.inner()).join(name), text)?;
                }
                continue;
            }
            for number in 1..=site.gateways {
                let outside = format!("{}/24", site.outside(number));
                join(lab.host(&site.gateway(number))?, &[&outside])?;
            }
            lay_lan(lab, site)?;
            for host in site.hosts() {
                behind_ssh.push(lab.host(&host)?);
            }
        }
        let own = folder.join("server");
        let sshd = tools.sshd.as_ref().context("there is no sshd")?;
        let sshds = start_sshds(&own, sshd, &behind_ssh)?;
        let folder = folder.to_owned();
        let three = Self { sites, tools, folder, starting: Vec::new(), _sshds: sshds };
        three.write_files()?;
        Ok(three)
    }

    /// Whether a cloud of this provider is played here.
    #[must_use]
    pub fn has(&self, provider: Provider) -> bool {
        self.sites.iter().any(|site| site.provider == provider)
    }

    /// The sites whose cloud is played.
    fn clouds(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.is_cloud())
    }

    fn own(&self, site: &Site) -> PathBuf {
        self.folder.join(site.inner())
    }

    /// The site file, what `ssh` needs to know, and what stands for an operator's accounts.
    fn write_files(&self) -> Result<()> {
        let own = self.folder.join("server");
        fs::write(own.join("sites.toml"), self.file()?)?;
        let place = own.display();
        let mut config = String::new();
        for site in self.sites.iter().filter(|site| !site.is_cloud()) {
            for number in 1..=site.gateways {
                let at = site.outside(number);
                let name = site.gateway(number);
                config += &format!("Host {name}\n  HostName {at}\n  HostKeyAlias {name}\n");
            }
            for number in 1..=MACHINES {
                let name = site.machine(number);
                config += &format!(
                    "Host {name}\n  HostName {}\n  HostKeyAlias {name}\n  ProxyJump root@{}\n",
                    site.address(number),
                    site.gateway(1)
                );
            }
        }
        config += &format!(
            "Host *\n  User root\n  IdentityFile {place}/key\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {place}/known_hosts\n  StrictHostKeyChecking yes\n"
        );
        fs::write(own.join("ssh_config"), config)?;
        fs::write(own.join("accounts"), self.accounts()?)?;
        Ok(())
    }

    /// The site file as a user would write it, but for the addresses of what plays the clouds.
    fn file(&self) -> Result<String> {
        let mut text = format!(
            "network = \"{NETWORK}\"\nssh_config = \"ssh_config\"\n\
             program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n"
        );
        for site in &self.sites {
            text += &format!("\n[[site]]\nname = \"{}\"\n", site.name);
            text += &match site.provider {
                Provider::Ssh => {
                    let hosts = site.hosts();
                    let hosts: Vec<String> =
                        hosts.iter().map(|host| format!("\"root@{host}\"")).collect();
                    let pair = if site.gateways == 2 { "gateways = 2\n" } else { "" };
                    format!("provider = \"ssh\"\n{pair}hosts = [{}]\n", hosts.join(", "))
                }
                Provider::Aws => format!(
                    "provider = \"aws\"\nregion = \"eu-west-1\"\n\
                     endpoint = \"https://{}:{AWS_PORT}\"\nimage = \"{}\"\n",
                    site.api(),
                    self.keys(site)?["image"].as_str().unwrap_or("ami-0")
                ),
                Provider::Azure => format!(
                    "provider = \"azure\"\nregion = \"westeurope\"\n\
                     endpoint = \"https://{}:{AZURE_PORT}\"\n",
                    site.api()
                ),
            };
        }
        Ok(text)
    }

    /// What AWS told when it opened; nothing before.
    fn keys(&self, site: &Site) -> Result<Value> {
        let path = self.own(site).join("keys.json");
        if !path.exists() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// What a shell is told of the operator's accounts, and of a folder that ends with its host.
    fn accounts(&self) -> Result<String> {
        // Whoever starts this may have accounts of their own, and proxies that know no lab.
        let mut text = "unset AWS_PROFILE AWS_SESSION_TOKEN AZURE_FEDERATED_TOKEN_FILE
unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy
export TMPDIR=/run AWS_EC2_METADATA_DISABLED=true
"
        .to_owned();
        for site in self.clouds() {
            let own = self.own(site);
            let own = own.display();
            if site.provider == Provider::Aws {
                let keys = self.keys(site)?;
                let key = |at: usize| keys["operator"][at].as_str().unwrap_or("-").to_owned();
                text += &format!(
                    "export AWS_ACCESS_KEY_ID='{}' AWS_SECRET_ACCESS_KEY='{}'\n\
                     export AWS_CA_BUNDLE='{own}/ca.pem'\n",
                    key(0),
                    key(1)
                );
            } else {
                text += &format!(
                    "export AZURE_TENANT_ID=a-tenant AZURE_CLIENT_ID=a-client\n\
                     export AZURE_CLIENT_SECRET='a&secret'\n\
                     export AZURE_SUBSCRIPTION_ID=00000000-0000-0000-0000-000000000001\n\
                     export AZURE_AUTHORITY_HOST=https://{}:{AZURE_PORT}\n\
                     export REQUESTS_CA_BUNDLE='{own}/arm-ca.pem'\n",
                    site.api()
                );
            }
        }
        Ok(text)
    }

    /// What is to be started to play the clouds, once `rights.json` is written by the server:
    /// each refuses what its part of it does not name.
    ///
    /// # Errors
    /// If that file cannot be read.
    pub fn to_start(&self) -> Result<Vec<Stay>> {
        let mut all = Vec::new();
        if self.clouds().next().is_none() {
            return Ok(all);
        }
        let rights = fs::read(self.folder.join("server/rights.json"))?;
        let rights: Value = serde_json::from_slice(&rights).context("rights.json")?;
        for site in self.clouds() {
            let is_aws = site.provider == Provider::Aws;
            let word = if is_aws { "aws" } else { "azure" };
            // A file with one cloud has the rights of that one.
            let own = rights.get(word).unwrap_or(&rights);
            fs::write(self.own(site).join("rights.json"), own.to_string())?;
            let api = site.api();
            all.push(if is_aws {
                let python = self.tools.moto.as_deref().unwrap_or_else(|| Path::new("python3"));
                let line = format!("{} cloud.py . {api} {AWS_PORT} rights.json", python.display());
                (site.inner(), line, "the cloud is open")
            } else {
                let line = format!("python3 arm.py serve . {api} {AZURE_PORT} rights.json");
                (site.inner(), line, "azure is open")
            });
        }
        Ok(all)
    }

    /// Writes what only clouds that have opened know.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn opened(&self) -> Result<()> {
        self.write_files()
    }

    /// Applies the file. Machines that the clouds run meanwhile start, and `glance` is called until
    /// it ends; then the fabrics become what their clouds believe.
    ///
    /// # Errors
    /// If it fails or takes longer than `limit`, or a machine did not do what its user data says;
    /// and what `glance` says.
    pub fn apply(
        &mut self,
        room: &Room,
        limit: Duration,
        mut glance: impl FnMut(&Process) -> Result<()>,
    ) -> Result<Applied> {
        let begin = Instant::now();
        let running = room.start("server", &command(APPLY))?;
        let said = running.end(limit, |process| {
            self.boot(room.lab())?;
            glance(process)
        })?;
        let took = begin.elapsed();
        self.settle(room.lab())?;
        Ok(Applied { said, took })
    }

    /// Starts the machines that the clouds have run since.
    fn boot(&mut self, lab: &Lab) -> Result<()> {
        for at in 0..self.sites.len() {
            let site = self.sites[at].clone();
            if !site.is_cloud() {
                continue;
            }
            let own = self.own(&site);
            for boot in boots(&own)? {
                self.settle_one(lab, &site)?;
                let python = self.tools.yaml.clone().unwrap_or_else(|| "python3".into());
                let machine = lab.host(&site.gateway(1))?;
                let process = start(machine, &python, &own.join("asked.py"), &boot)?;
                self.starting.push((site.gateway(1), process));
            }
        }
        let mut failed = None;
        self.starting.retain(|(name, process)| {
            if process.is_running() {
                return true;
            }
            if !process.wait(Duration::from_secs(1)).is_ok_and(|status| status.success()) {
                failed = Some(format!("{name} did not start\n{}", process.log()));
            }
            false
        });
        failed.map_or(Ok(()), |why| Err(anyhow!(why)))
    }

    /// Makes of the fabrics what their clouds believe now.
    fn settle(&self, lab: &Lab) -> Result<()> {
        self.clouds().try_for_each(|site| self.settle_one(lab, site))
    }

    fn settle_one(&self, lab: &Lab, site: &Site) -> Result<()> {
        let public = site.outside(1);
        let gateway = format!("{}.254", site.net);
        let mut words = vec!["fabric", public.as_str()];
        if site.provider == Provider::Aws {
            words.push(&gateway);
        }
        let script = self.ask(lab, site, &words)?;
        lab.host(&site.inner())?.sh(&script).map(drop)
    }

    /// How much of everything the clouds have.
    ///
    /// # Errors
    /// If one does not answer.
    pub fn census(&self, lab: &Lab) -> Result<Vec<String>> {
        self.clouds().map(|site| self.ask(lab, site, &["census"])).collect()
    }

    /// Asks a cloud something as its administrator.
    fn ask(&self, lab: &Lab, site: &Site, words: &[&str]) -> Result<String> {
        let own = self.own(site);
        let place = own.display().to_string();
        let moto = self.tools.moto.as_ref().map(|python| python.display().to_string());
        let [python, script, kind] = match site.provider {
            Provider::Aws => [moto.as_deref().unwrap_or("python3"), "asked.py", ""],
            Provider::Azure | Provider::Ssh => ["python3", "arm.py", "ask"],
        };
        let script = own.join(script).display().to_string();
        let begin = [python, &script, kind, &place];
        let begin = begin.into_iter().filter(|word| !word.is_empty());
        let all: Vec<&str> = begin.chain(words.iter().copied()).collect();
        lab.host(&site.inner())?.run(&all)
    }
}

/// A cloud's fabric with its machines.
fn lay_cloud(lab: &Lab, site: &Site, cloud: &Host) -> Result<()> {
    let mut ports = vec![Port { host: lab.host(&site.gateway(1))?, name: "gw0", last: 254 }];
    let names: Vec<String> = (0..MACHINES).map(|number| format!("app{number}")).collect();
    for (name, number) in names.iter().zip(1..) {
        let host = lab.host(&site.machine(number))?;
        ports.push(Port { host, name, last: site.last(number) });
    }
    fabric(lab.net(), cloud, &site.net, &ports)
}

/// A site's own network, which is a switch.
fn lay_lan(lab: &Lab, site: &Site) -> Result<()> {
    let lan = lab.host(&site.inner())?;
    let mut script = String::new();
    let mut plug = |port: &str, host: String, name: &str, at: String| -> Result<()> {
        script += &format!("ip link set {port} master br0\n");
        lab.net().veth((lan, port, &[]), (lab.host(&host)?, name, &[&at]))
    };
    for number in 1..=site.gateways {
        let inside = format!("{}.{}/24", site.net, 255 - number);
        plug(&format!("gw{number}"), site.gateway(number), "lan0", inside)?;
    }
    for number in 1..=MACHINES {
        let at = format!("{}/24", site.address(number));
        plug(&format!("app{number}"), site.machine(number), "eth0", at)?;
    }
    lan.sh(&script).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Plan, Topology};

    fn tools(has: [bool; 3]) -> Tools {
        let [sshd, moto, yaml] = has.map(|has| has.then(|| PathBuf::from("/x")));
        Tools { sshd, moto, yaml }
    }

    #[test]
    fn a_cloud_that_cannot_be_played_is_a_site_of_ssh() {
        let nets = |has| sites(&tools(has)).unwrap().map(|site| site.net);
        assert_eq!(nets([true, true, true]), ["10.4.0", "10.1.0", "10.2.0"]);
        assert_eq!(nets([true, false, true]), ["10.4.0", "10.4.1", "10.2.0"]);
        assert_eq!(nets([true, false, false]), ["10.4.0", "10.4.1", "10.4.2"]);
        let why = sites(&tools([false, true, true])).unwrap_err().to_string();
        assert!(why.contains("make demo-sites"), "{why}");
    }

    #[test]
    fn hosts_are_a_topology_and_nobody_has_anothers_address() {
        for has in [[true, true, true], [true, false, true], [true, false, false]] {
            let sites = sites(&tools(has)).unwrap();
            let topology = Topology::parse(&topology(&sites), Path::new("sites.toml")).unwrap();
            assert_eq!(Plan::new(&topology).unwrap().nodes.len(), 2 + 5 + 4 + 4);
            let mut all = vec![SERVER.to_owned()];
            for site in &sites {
                all.extend((1..=site.gateways).map(|number| site.outside(number)));
                all.extend((1..=MACHINES).map(|number| site.address(number)));
                all.push(site.api());
            }
            let count = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "{all:?}");
        }
    }
}
