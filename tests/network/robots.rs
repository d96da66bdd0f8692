//! ROS 1 itself between two campuses that let out nothing but HTTPS: the master, topics, a service
//! and an action, by rosmaster, rospy and actionlib as Debian packs them.

use lab::process::Process;

use super::*;

/// Neither campus forwards anything but connections to port 443, and none comes in.
const TOPOLOGY: &str = r#"
[hosts.server]
[hosts.robot]
[hosts.office]
[switches.internet]
[routers.campus]
nat = "port-restricted"
outside = ["campus-internet"]
blocked = ["all-but-443"]
[routers.institute]
nat = "symmetric"
outside = ["institute-internet"]
blocked = ["all-but-443"]
[[links]]
between = ["robot", "campus"]
addresses = [["192.168.1.2/24"], ["192.168.1.1/24"]]
[[links]]
between = ["office", "institute"]
addresses = [["192.168.1.2/24"], ["192.168.1.1/24"]]
[[links]]
between = ["campus", "internet"]
addresses = [["10.72.0.2/24"], []]
[[links]]
between = ["institute", "internet"]
addresses = [["10.72.0.3/24"], []]
[[links]]
between = ["server", "internet"]
addresses = [["10.72.0.1/24"], []]
"#;
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/network/robots.py");
const MODULES: &str = "ros/usr/lib/python3/dist-packages";
/// Debian's own, which its modules are made for.
const PYTHON: &str = "/usr/bin/python3";
const ROBOT: usize = 0;
const OFFICE: usize = 1;
const NAMES: [&str; 2] = ["robot.warren.internal", "office.warren.internal"];
const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];

/// A program of ROS on a node, with the master on another.
fn start(lan: &Lan, at: usize, role: &str, master: usize) -> Result<Process> {
    let host = &lan.nodes[at].host;
    let mut command = host.command(&[PYTHON, "-B", PROGRAM, role]);
    command
        .env("PYTHONPATH", tools().join(MODULES))
        .env("ROS_MASTER_URI", format!("http://{}:11311", NAMES[master]))
        .env("ROS_HOSTNAME", NAMES[at])
        .env("ROS_HOME", lan.folder.path(&format!("ros-{role}-{master}")))
        // Its logs go nowhere: there is no file that says where.
        .env("ROS_PYTHON_LOG_CONFIG_FILE", "/dev/null");
    host.spawn_command(command)
}

/// All of it, with the master on the side of `at`.
fn work(lan: &Lan, at: usize) -> Result<()> {
    let begin = Instant::now();
    let master = start(lan, at, "master", at)?;
    let listens = "ss -Hltn 'sport = :11311' | grep -q .";
    eventually("the master listens", seconds(PATIENCE), || lan.nodes[at].host.sh(listens).is_ok())
        .with_context(|| master.log())?;
    let robot = start(lan, ROBOT, "robot", at)?;
    robot.wait_for_within(seconds(PATIENCE), |log| log.contains("robot ready"))?;
    let operator = start(lan, OFFICE, "operator", at)?;
    let done = operator.wait_for_within(seconds(2 * PATIENCE), |log| log.contains("done"));
    done.with_context(|| format!("robot: {}\nmaster: {}", robot.log(), master.log()))?;
    eprintln!("ROS 1 with its master at {}: {:?}", NAMES[at], begin.elapsed());
    Ok(())
}

#[test]
fn source_000_5_9_ros_1_itself_works_between_two_networks_that_let_out_https_alone() -> Result<()> {
    if !tools().join(MODULES).join("rospy").exists() {
        eprintln!("\n*** SKIPPED: there is no ROS 1 in {}: make setup ***\n", tools().display());
        return Ok(());
    }
    let _turn = turn::shared();
    let lab = lab_of("ros1", TOPOLOGY, "robots.toml")?;
    let place = ["10.72.0.1:443", "https://10.72.0.1", "10.72.0.1:3478"];
    let mut lan = Lan::in_lab("ros1", &lab, &["robot", "office"], place)?;
    let result = both_ways(&mut lan);
    lan.told(result)
}

fn both_ways(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    for (from, to) in [(ROBOT, OFFICE), (OFFICE, ROBOT)] {
        lan.reaches(from, INSIDE[to])?;
        let status = lan.status(from)?;
        let path = &status["peers"][0]["path"];
        ensure!(path["kind"] == "relay", "not by HTTPS alone: {path}");
        // By its name, as nodes of ROS call each other.
        let name = || lan.nodes[from].host.sh(&format!("ping -c 1 -W 1 {}", NAMES[to]));
        eventually("its name is known", seconds(PATIENCE), || name().is_ok())?;
    }
    work(lan, ROBOT)?;
    work(lan, OFFICE)
}
