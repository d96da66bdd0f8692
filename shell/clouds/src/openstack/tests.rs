//! What a cloud is asked for at one step. It is played here: lists as they are after a site was
//! made, and two calls that change something.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sites::{Action, Id, Kind, Step};

use super::access::Access;
use super::{Project, Things, read};
use crate::Error;
use crate::make::Maker as _;
use crate::place::{Boot, Place as _};
use crate::rest::Rest;

const INNER: &str = "acme-v-gw1";
const OUTER: &str = "acme-v-gw1-outside";
/// The machine's number, by nova's word.
const MACHINE: &str = "sv-1";

/// What the cloud knows, and what it was asked.
struct Memory {
    status: &'static str,
    /// Whether the machine has its outer port.
    is_attached: bool,
    asked: Vec<String>,
}

/// A project of it.
struct Cloud {
    project: Project,
    memory: Arc<Mutex<Memory>>,
}

impl Cloud {
    /// One whose machine is in this state and has no outer port; it was looked at.
    fn open(status: &'static str) -> Self {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("http://{}", listening.local_addr().unwrap());
        let memory = Memory { status, is_attached: false, asked: Vec::new() };
        let memory = Arc::new(Mutex::new(memory));
        let own = Arc::clone(&memory);
        std::thread::spawn(move || {
            // Who hangs up is no reason to stop: a port may have been another test's before.
            listening.incoming().flatten().for_each(|stream| drop(serve(stream, &own)));
        });
        let access =
            Access { token: "t".to_owned(), network: at.clone(), compute: at, image: None };
        let project = Project {
            network: "acme".to_owned(),
            region: None,
            endpoint: None,
            rest: Rest::new(None).unwrap(),
            access: Some(access),
            things: Things::new(),
            names: super::BTreeMap::new(),
        };
        let mut cloud = Self { project, memory };
        cloud.project.look().unwrap();
        cloud
    }

    /// What was asked since this was called last.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.memory.lock().unwrap().asked)
    }

    /// The calls among them that change something.
    fn changes(&self) -> Vec<String> {
        self.asked().into_iter().filter(|call| !call.starts_with("GET ")).collect()
    }

    fn interfaces(&self) -> String {
        let machine = &self.project.things()[&Id::new(Kind::Machine, "v", INNER)];
        machine.properties["interfaces"].clone()
    }
}

/// Answers one request, and closes.
fn serve(mut stream: TcpStream, memory: &Mutex<Memory>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; len.map_or(0, |len| len.parse().unwrap())];
    stream.read_exact(&mut body)?;
    let words: Vec<&str> = head.split(' ').collect();
    let path = words[1].trim_start_matches("/v2.0").trim_start_matches('/');
    let call = format!("{} {path}", words[0].to_uppercase());
    let answer = memory.lock().unwrap().answer(&call, &String::from_utf8(body).unwrap());
    let answer = answer.to_string();
    let told = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}", answer.len());
    stream.write_all(format!("{told}\r\n\r\n{answer}").as_bytes())
}

fn marked(id: &str, role: &str, mut more: Value) -> Value {
    more["id"] = json!(id);
    more["description"] = json!(format!("warren acme v {role}"));
    more
}

impl Memory {
    fn answer(&mut self, call: &str, body: &str) -> Value {
        self.asked.push(format!("{call} {body}").trim_end().to_owned());
        match call {
            "GET networks" => json!({ "networks": [marked("net-1", "inside", json!({}))] }),
            "GET routers" => json!({ "routers": [marked("rt-1", "router", json!({}))] }),
            "GET subnets" => {
                let route = json!([{ "destination": "10.0.0.0/8", "nexthop": "10.3.0.254" }]);
                let inside = marked("sub-1", "inside", json!({ "host_routes": route }));
                json!({ "subnets": [inside, marked("sub-2", "outside", json!({}))] })
            }
            "GET security-groups" => {
                json!({ "security_groups": [marked("sg-1", "gateway", json!({}))] })
            }
            "GET ports" => json!({ "ports": self.ports() }),
            "GET floatingips" => {
                json!({ "floatingips": [marked("ip-1", INNER, json!({ "port_id": "port-2" }))] })
            }
            "GET security-group-rules" => json!({ "security_group_rules": [
                { "id": "r-1", "description": "warren acme", "remote_ip_prefix": "10.0.0.0/8" }] }),
            "GET servers/detail" => json!({ "servers": [
                { "id": MACHINE, "status": self.status,
                  "metadata": { "warren": format!("warren acme v {INNER}") } }] }),
            "POST servers/sv-1/os-interface" => {
                self.is_attached = true;
                json!({})
            }
            other => {
                assert_eq!(other, "POST servers/sv-1/action", "{body}");
                json!({})
            }
        }
    }

    fn ports(&self) -> [Value; 3] {
        let at = |address: &str| json!([{ "ip_address": address, "subnet_id": "sub-2" }]);
        let inner = json!({ "device_id": MACHINE, "fixed_ips": at("10.3.0.254") });
        let device = if self.is_attached { MACHINE } else { "" };
        let outer = json!({ "device_id": device, "fixed_ips": at("172.31.254.10"),
                            "security_groups": ["sg-1"] });
        let router = json!({ "id": "port-3", "device_id": "rt-1", "description": "",
            "device_owner": "network:router_interface", "fixed_ips": at("172.31.254.1") });
        [marked("port-1", INNER, inner), marked("port-2", OUTER, outer), router]
    }
}

/// The machine, with both of its interfaces.
fn step() -> Step {
    let wanted = [("interfaces", format!("{INNER},{OUTER}")), ("state", "running".to_owned())];
    Step {
        action: Action::Change(Vec::new()),
        id: Id::new(Kind::Machine, "v", INNER),
        properties: wanted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        why: String::new(),
    }
}

#[test]
fn a_step_has_the_lists_of_its_own_kind_asked_for_and_no_others() {
    let mut cloud = Cloud::open("ACTIVE");
    let all = [
        "GET networks",
        "GET routers",
        "GET subnets",
        "GET security-groups",
        "GET ports",
        "GET floatingips",
        "GET security-group-rules",
        "GET servers/detail",
    ];
    assert_eq!(cloud.asked(), all, "all of it, each list once");
    let before = cloud.project.things().clone();
    let lists: [(Kind, &[usize]); 10] = [
        (Kind::Network, &[0]),
        (Kind::InternetGateway, &[1]),
        (Kind::Subnet, &[2]),
        (Kind::Group, &[3]),
        (Kind::Interface, &[4]),
        (Kind::Address, &[5]),
        (Kind::MachineRule, &[6]),
        (Kind::Route, &[2]),
        (Kind::Table, &[4]),
        (Kind::Machine, &[4, 7]),
    ];
    assert_eq!(lists.len(), read::LOOKED.len());
    for (kind, wanted) in lists {
        let id = before.keys().find(|id| id.kind == kind).unwrap();
        cloud.project.look_again(id).unwrap();
        let wanted: Vec<&str> = wanted.iter().map(|at| all[*at]).collect();
        assert_eq!(cloud.asked(), wanted, "{kind:?}");
        assert_eq!(*cloud.project.things(), before, "{kind:?}: of others is known what was");
    }
    // What was seen is in the plan's words, whichever list it is from.
    let is =
        |kind, name: &str, key: &str| before[&Id::new(kind, "v", name)].properties[key].clone();
    assert_eq!(is(Kind::Interface, OUTER, "group"), "gateway");
    assert_eq!(is(Kind::Address, INNER, "at"), OUTER);
    assert_eq!(is(Kind::Route, "10.0.0.0/8", "via"), INNER);
    assert_eq!(is(Kind::Table, "router", "subnet"), "outside");
    assert_eq!(is(Kind::Machine, INNER, "interfaces"), INNER);
}

#[test]
fn a_port_that_was_made_again_is_given_to_its_machine_and_read_back() {
    let mut cloud = Cloud::open("ACTIVE");
    cloud.asked();
    let mut boot = || -> Result<Boot, Error> { Err(Error::new("v", "no machine is made")) };
    cloud.project.make(&step(), None, &mut boot).unwrap();
    let given = "POST servers/sv-1/os-interface {\"interfaceAttachment\":{\"port_id\":\"port-2\"}}";
    assert_eq!(cloud.changes(), [given]);
    assert_eq!(cloud.interfaces(), format!("{INNER},{OUTER}"));
    cloud.project.make(&step(), None, &mut boot).unwrap();
    assert!(cloud.changes().is_empty(), "it has it");
}

#[test]
fn a_machine_that_is_stopped_gets_its_port_before_it_starts_and_one_that_is_made_gets_none() {
    let attach = "servers/sv-1/os-interface";
    let cases: [(&str, &[&str]); 4] = [
        ("ACTIVE", &[attach]),
        ("SHUTOFF", &[attach, "servers/sv-1/action"]),
        ("BUILD", &[]),
        ("ERROR", &[]),
    ];
    for (status, wanted) in cases {
        let mut cloud = Cloud::open(status);
        cloud.project.ensure(&step(), MACHINE).unwrap();
        let changes = cloud.changes();
        let paths: Vec<&str> = changes.iter().filter_map(|call| call.split(' ').nth(1)).collect();
        assert_eq!(paths, wanted, "{status}");
    }
    // One that was just created is known of when it is looked at again.
    let mut cloud = Cloud::open("ACTIVE");
    cloud.project.forget(&step().id);
    cloud.project.ensure(&step(), MACHINE).unwrap();
    assert!(cloud.changes().is_empty());
}
