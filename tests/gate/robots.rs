//! Robots' middleware over the network, from the peer lists that `warren ros` writes: the real
//! Cyclone DDS where Python has it, between hosts whose network lets no UDP pass.

use std::process::{Command, Stdio};

use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::{Running, World};

/// Writes one topic until it is killed, or reads it and tells what came.
const PROGRAM: &str = r"
import sys, time
from dataclasses import dataclass
from cyclonedds.core import Qos, Policy
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

@dataclass
class Pose(IdlStruct):
    number: int
    text: str

participant = DomainParticipant(0)
qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepLast(10))
topic = Topic(participant, 'poses', Pose, qos=qos)
if sys.argv[1] == 'write':
    writer = DataWriter(participant, topic, qos=qos)
    for number in range(1000):
        writer.write(Pose(number=number, text='x' * 5000))
        time.sleep(0.1)
else:
    reader = DataReader(participant, topic, qos=qos)
    end = time.time() + 30
    while time.time() < end:
        for pose in reader.take(10):
            print('came', pose.number, len(pose.text), flush=True)
            sys.exit(0)
        time.sleep(0.05)
    sys.exit(1)
";

/// The Python that has Cyclone DDS: `WARREN_PYTHON_DDS`, or the usual one.
fn python() -> Option<String> {
    let named = std::env::var("WARREN_PYTHON_DDS").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&named).args(["-c", "import cyclonedds"]).stderr(Stdio::null()).status();
    has.is_ok_and(|status| status.success()).then_some(named)
}

#[test]
fn robots_find_each_other_by_the_list_where_no_udp_passes() -> Result<()> {
    scene("gate5r", |scene| {
        let mut world = World::new(scene, "24")?;
        // No UDP between the nodes at all: what passes is HTTPS to the server and its relay.
        for host in [&world.a, &world.b] {
            host.sh("nft add table inet block
                 nft add chain inet block in '{ type filter hook input priority 0; }'
                 nft add rule inet block in iifname eth0 meta l4proto udp drop")?;
        }
        world.join("", &[], &[])?;
        let address =
            |i: usize| Ok::<_, anyhow::Error>(world.node(i, &["ip", "-4"])?.trim().to_owned());
        let (a, b) = (address(0)?, address(1)?);
        let file = |i: usize| world.folder.path(&format!("dds-{i}.xml"));
        // The file is kept fresh: it is there before the peer is, and has it when it is.
        let watched = world.folder.path("peers.sh");
        let socket = world.folder.path("a.sock");
        let words = ["--socket", &socket, "ros", "--out", &watched, "--watch"];
        let mut command = world.a.command(&[env!("CARGO_BIN_EXE_warren")]);
        let _watching = Running(command.args(words).stdout(Stdio::null()).spawn()?);
        let has = |text: &str| std::fs::read_to_string(&watched).is_ok_and(|t| t.contains(text));
        eventually("the list has the other", seconds(20), || has(&b))?;
        let started = |name: &str| world.folder.path(name);
        ensure!(!std::path::Path::new(&started("peers.sh.new")).exists(), "written whole");
        ensure!(
            world.node(1, &["ros"])? == format!("export ROS_STATIC_PEERS='{a}'\n"),
            "a shell's"
        );
        world.admin(&["node", "remove", "b"])?;
        eventually("the list has it no more", seconds(20), || !has(&b) && has("PEERS=''"))?;
        let token = world.admin(&["key", "create"])?;
        world.node(1, &["logout"])?;
        world.node(1, &["up", token.trim(), "--timeout", "20s", "--hostname", "b"])?;
        let b = world.node(1, &["ip", "-4"])?.trim().to_owned();
        eventually("the list has it again", seconds(20), || has(&b))?;
        eventually("the two meet", seconds(20), || {
            world.a.run(&["ping", "-n", "-c", "1", "-W", "1", &b]).is_ok()
        })?;
        let Some(python) = python() else {
            eprintln!("skipped from here on: no Python with cyclonedds (pip install cyclonedds)");
            return Ok(());
        };
        for i in [0, 1] {
            world.node(i, &["ros", "--format", "cyclone", "--out", &file(i)])?;
        }
        let program = |i: usize, word: &str| {
            let mut command = world.host(i).command(&[&python, "-c", PROGRAM, word]);
            command.env("CYCLONEDDS_URI", format!("file://{}", file(i)));
            command
        };
        let _writer = Running(program(0, "write").stdout(Stdio::null()).spawn()?);
        let read = program(1, "read").output()?;
        let told = String::from_utf8_lossy(&read.stdout);
        ensure!(told.starts_with("came ") && told.trim().ends_with(" 5000"), "{read:?}");
        Ok(())
    })
}
