//! Three sites of a gateway and a machine each, all reached by `ssh`; machines through gateways.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::process::Process;
use lab::sites::{Tools, start_sshds};

use crate::support::*;

pub(crate) const SITES: [&str; 3] = ["paris", "lyon", "nice"];
const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const SERVER: &str = "198.51.100.254";
/// What two sites may have both.
pub(crate) const ALIKE: &str = "192.168.1";

/// The server program of OpenSSH, installed or unpacked by `make setup`; says so if there is none.
pub(crate) fn sshd() -> Option<PathBuf> {
    let found = Tools::find(&target().join("tools")).sshd;
    if found.is_none() {
        eprintln!("\n*** SKIPPED: there is no sshd; `make setup` unpacks one ***\n");
    }
    found
}

/// A server, three gateways and three machines, and where the site file is.
pub(crate) struct World {
    folder: PathBuf,
    pub(crate) server: Host,
    pub(crate) gateways: Vec<Host>,
    pub(crate) apps: Vec<Host>,
    /// The second gateway of the first site, if there is one.
    pub(crate) second: Option<Host>,
    serve: Child,
    _sshds: Vec<Process>,
}

pub(crate) fn said(command: &mut Command) -> Result<String> {
    let out = command.output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {}", why.trim());
    Ok(text)
}

impl World {
    pub(crate) fn new(scene: &Scene, id: &str, sshd: &Path) -> Result<Self> {
        Self::with(scene, id, sshd, false, false)
    }

    /// The same; `pair` gives the first site a second gateway, and with `alike` the first two have
    /// the same addresses.
    pub(crate) fn with(
        scene: &Scene,
        id: &str,
        sshd: &Path,
        pair: bool,
        alike: bool,
    ) -> Result<Self> {
        scene.net.borrow_mut().give_own_run();
        let folder = std::env::temp_dir().join(format!("warren-{id}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let server = scene.host("server")?;
        server.sh(&format!(
            "ip link add br0 type bridge && ip link set br0 up && ip addr add {SERVER}/24 dev br0"
        ))?;
        let (mut gateways, mut apps) = (Vec::new(), Vec::new());
        for (at, name) in SITES.iter().enumerate() {
            let gateway = scene.host(&format!("gw-{name}"))?;
            let app = scene.host(&format!("app-{name}"))?;
            let outside = format!("198.51.100.{}/24", at + 1);
            let port = format!("p{at}");
            scene.veth((&server, &port, &[]), (&gateway, "wan0", &[&outside]))?;
            server.sh(&format!("ip link set {port} master br0"))?;
            let net = if alike && at < 2 { ALIKE.to_owned() } else { format!("10.4.{at}") };
            let inside = format!("{net}.254/24");
            let inner = format!("{net}.1/24");
            app.sh(&format!(
                "ip link add eth0 type bridge && ip link set eth0 up
                 ip addr add {inner} dev eth0"
            ))?;
            scene.veth((&gateway, "lan0", &[&inside]), (&app, "lan1", &[]))?;
            app.sh("ip link set lan1 master eth0")?;
            gateways.push(gateway);
            apps.push(app);
        }
        let second = if pair { Some(second(scene, &server, &apps[0])?) } else { None };
        let all: Vec<&Host> = gateways.iter().chain(&apps).chain(&second).collect();
        let sshds = start_sshds(&folder, sshd, &all)?;
        let serve = start_server(&folder, &server, &[])?;
        let world = Self { folder, server, gateways, apps, second, serve, _sshds: sshds };
        world.write_files(alike)?;
        Ok(world)
    }

    /// The server is another one from now on, with `words` more.
    pub(crate) fn serve_with(&mut self, words: &[&str]) -> Result<()> {
        self.serve.kill()?;
        self.serve.wait()?;
        self.serve = start_server(&self.folder, &self.server, words)?;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The site file, and what `ssh` needs to know.
    fn write_files(&self, alike: bool) -> Result<()> {
        let mut file = "network = \"acme\"\nssh_config = \"ssh_config\"\n\
                        program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n"
            .to_owned();
        let folder = self.folder.display();
        let mut config = String::new();
        for (at, name) in SITES.iter().enumerate() {
            let is_pair = at == 0 && self.second.is_some();
            let (count, more) = if is_pair { (2, "\"root@gw2-paris\", ") } else { (1, "") };
            file += &format!(
                "[[site]]\nname = \"{name}\"\nprovider = \"ssh\"\ngateways = {count}\n\
                 hosts = [\"root@gw-{name}\", {more}\"root@app-{name}:22\"]\n"
            );
            let is_alike = alike && at < 2;
            let net = if is_alike { ALIKE.to_owned() } else { format!("10.4.{at}") };
            if is_alike {
                file += &format!("subnets = [\"{ALIKE}.0/24\"]\nalias = true\n");
            }
            config += &format!(
                "Host gw-{name}\n  HostName 198.51.100.{}\n  HostKeyAlias gw-{name}\n\
                 Host app-{name}\n  HostName {net}.1\n  HostKeyAlias app-{name}\n  \
                 ProxyJump root@gw-{name}\n",
                at + 1
            );
        }
        config += "Host gw2-paris\n  HostName 198.51.100.11\n  HostKeyAlias gw2-paris\n";
        config += &format!(
            "Host *\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
        );
        std::fs::write(self.path("sites.toml"), file)?;
        std::fs::write(self.path("ssh_config"), config)?;
        Ok(())
    }

    /// `warren sites` on the server's machine.
    pub(crate) fn sites(&self, words: &[&str]) -> Result<String> {
        said(&mut self.command(words))
    }

    /// The same, yet to be started.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.server.command(&[WARREN, "sites", words[0]]);
        command.args(&words[1..]).arg(self.path("sites.toml"));
        command.arg("--data").arg(self.path("server"));
        command
    }

    pub(crate) fn admin(&self, words: &[&str]) -> Result<String> {
        let mut command = self.server.command(&[WARREN]);
        said(command.args(words).arg("--data").arg(self.path("server")))
    }

    /// Whether the machine of one site reaches that of another.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        self.apps[from].sh(&format!("ping -c 1 -W 0.5 10.4.{to}.1")).is_ok()
    }

    /// From which address a machine sees another one's connection.
    pub(crate) fn seen(&self, from: usize, to: usize) -> Result<String> {
        let listen = "import socket
listening = socket.create_server(('0.0.0.0', 7000))
print('ready', flush=True)
print('from', listening.accept()[1][0], flush=True)";
        let listening = self.apps[to].spawn(&["python3", "-c", listen])?;
        listening.wait_for(|log| log.contains("ready"))?;
        let call = format!("import socket; socket.create_connection(('10.4.{to}.1', 7000))");
        self.apps[from].run(&["python3", "-c", &call])?;
        listening.wait_for(|log| log.contains("from"))?;
        let log = listening.log();
        let line = log.lines().find(|line| line.starts_with("from")).unwrap_or_default();
        Ok(line.trim_start_matches("from ").to_owned())
    }

    /// The machines before anything is done, once the kernel has given its own addresses.
    pub(crate) fn settled(&self) -> Result<String> {
        let last = std::cell::RefCell::new(self.machines()?);
        eventually("machines stay as they are", seconds(30), || {
            std::thread::sleep(seconds(2));
            self.machines().is_ok_and(|now| last.replace(now.clone()) == now)
        })?;
        Ok(last.take())
    }

    /// Everything of the machines that sites could leave something in.
    pub(crate) fn machines(&self) -> Result<String> {
        let mut all = String::new();
        for host in self.gateways.iter().chain(&self.apps) {
            let files = host.sh("find /etc /run -maxdepth 1 -name 'warren*' \
                   ! -name warren-site.lock ! -name warren-bin
                 grep -H . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/forwarding
                 pgrep -a --ns $$ --nslist net warren || true")?;
            all += &format!("== {}\n{}{files}", host.name(), snapshot(host)?);
        }
        Ok(all)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Ours; what the gateways run ends with their namespaces.
        let _ = self.serve.kill();
        let _ = self.serve.wait();
        if std::thread::panicking() {
            return;
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Another gateway of the site of `app`.
fn second(scene: &Scene, server: &Host, app: &Host) -> Result<Host> {
    let gateway = scene.host("gw2-paris")?;
    scene.veth((server, "p9", &[]), (&gateway, "wan0", &["198.51.100.11/24"]))?;
    server.sh("ip link set p9 master br0")?;
    scene.veth((&gateway, "lan0", &["10.4.0.253/24"]), (app, "lan2", &[]))?;
    app.sh("ip link set lan2 master eth0")?;
    Ok(gateway)
}

fn start_server(folder: &Path, server: &Host, words: &[&str]) -> Result<Child> {
    let log = folder.join("serve.log");
    let out = std::fs::File::create(&log)?;
    let mut command = server.command(&[WARREN, "serve"]);
    command.arg("--data").arg(folder.join("server"));
    let (listen, stun) = (format!("{SERVER}:8443"), format!("{SERVER}:3478"));
    command.args(["--listen", &listen, "--url", &format!("https://{listen}"), "--stun", &stun]);
    command.args(words);
    let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn()?;
    eventually("the server serves", seconds(20), || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("serving on"))
    })?;
    Ok(child)
}
