//! What a file means, and what is said of mistakes in it.

use std::path::Path;

use super::*;

fn plan(text: &str) -> Result<Plan, String> {
    let topology = Topology::parse(text, Path::new("lab.toml")).map_err(|m| m.to_string())?;
    Plan::new(&topology).map_err(|m| m.to_string())
}

const CHAIN: &str = "[hosts.a]\n[hosts.b]\n[routers.r]\n[[links]]\nbetween = [\"a\", \"r\"]\n\
                     [[links]]\nbetween = [\"r\", \"b\"]\n";

#[test]
fn addresses_and_routes_are_assigned() {
    let plan = plan(CHAIN).expect("good");
    assert_eq!(plan.name, "lab");
    assert_eq!(plan.address("b"), Some("10.71.2.2".parse().expect("address")));
    let a = plan.nodes.iter().find(|n| n.name == "a").expect("a");
    assert_eq!(
        a.routes,
        [
            "route add 10.71.2.0/24 via 10.71.1.2\n",
            "route add default via 10.71.1.2\n",
            "route add fd71:0:0:2::/64 via fd71:0:0:1::2\n",
            "route add default via fd71:0:0:1::2\n",
        ]
    );
    assert!(plan.nodes.iter().find(|n| n.name == "r").expect("r").routes.is_empty());
}

#[test]
fn nobody_has_a_route_into_a_nat() {
    let nat = CHAIN.replace("[routers.r]", "[routers.r]\nnat = \"symmetric\"\noutside = [\"r-b\"]");
    let plan = plan(&nat).expect("good");
    let routes = |name| plan.nodes.iter().find(|n| n.name == name).expect(name).routes.concat();
    assert!(routes("a").contains("10.71.2.0/24"));
    assert!(!routes("b").contains("10.71.1.0/24"));
}

#[test]
fn each_family_has_its_own_way_where_a_link_carries_only_one() {
    // a - r, and from there IPv4 by x and IPv6 by y to b.
    let link = |a: &str, b: &str, addresses: &str| {
        format!("[[links]]\nbetween = [\"{a}\", \"{b}\"]\naddresses = {addresses}\n")
    };
    let text = "[hosts.a]\n[hosts.b]\n[switches.s]\n[routers.r]\n[routers.x]\n[routers.y]\n"
        .to_owned()
        + &link("a", "r", r#"[["10.1.0.2/24", "fd01::2/64"], ["10.1.0.1/24", "fd01::1/64"]]"#)
        + &link("r", "x", r#"[["10.2.0.2/24"], ["10.2.0.1/24"]]"#)
        + &link("r", "y", r#"[["fd02::2/64"], ["fd02::1/64"]]"#)
        + &link("x", "s", r#"[["10.3.0.1/24", "fd03::1/64"], []]"#)
        + &link("y", "s", r#"[["10.3.0.2/24", "fd03::2/64"], []]"#)
        + &link("b", "s", r#"[["10.3.0.3/24", "fd03::3/64"], []]"#);
    let plan = plan(&text).expect("good");
    let routes = |name| plan.nodes.iter().find(|n| n.name == name).expect(name).routes.concat();
    assert_eq!(
        routes("r"),
        "route add 10.3.0.0/24 via 10.2.0.1\nroute add default via 10.2.0.1\n\
         route add fd03::/64 via fd02::1\nroute add default via fd02::1\n"
    );
    let back = routes("b");
    assert!(back.contains("route add 10.1.0.0/24 via 10.3.0.1\n"), "{back}");
    assert!(back.contains("route add fd01::/64 via fd03::2\n"), "{back}");
}

#[test]
fn no_ipv6_is_announced_that_is_dead_behind_a_nat() {
    // a - inner - r (NAT) - b, and c beside a.
    let plan = plan(
        "[hosts.a]\n[hosts.b]\n[hosts.c]\n[switches.s]\n[routers.inner]\n\
         [routers.r]\nnat = \"symmetric\"\noutside = [\"r-b\"]\n\
         [[links]]\nbetween = [\"a\", \"s\"]\n[[links]]\nbetween = [\"c\", \"s\"]\n\
         [[links]]\nbetween = [\"inner\", \"s\"]\n[[links]]\nbetween = [\"inner\", \"r\"]\n\
         [[links]]\nbetween = [\"r\", \"b\"]\n",
    )
    .expect("good");
    for link in &plan.links {
        for end in link.ends.iter().filter(|end| !end.is_port) {
            let has_v6 = end.addresses.iter().any(|cidr| cidr.address.is_ipv6());
            assert_eq!(has_v6, link.name == "r-b", "{} at {}", link.name, end.node);
        }
    }
    let routes = |name| plan.nodes.iter().find(|n| n.name == name).expect(name).routes.concat();
    for name in ["a", "c", "inner", "r"] {
        assert!(!routes(name).contains("fd71") || name == "r", "{name}: {}", routes(name));
    }
    assert!(routes("a").contains("default via 10.71."), "{}", routes("a"));
}

#[test]
fn switches_join_links_to_one_subnet() {
    let plan = plan(
        "[hosts.a]\n[hosts.b]\n[switches.s]\n[switches.t]\n\
         [[links]]\nbetween = [\"a\", \"s\"]\n[[links]]\nbetween = [\"b\", \"t\"]\n\
         [[links]]\nbetween = [\"s\", \"t\"]\n",
    )
    .expect("good");
    let subnets: BTreeSet<Cidr> = plan
        .links
        .iter()
        .flat_map(|l| &l.ends)
        .flat_map(|e| &e.addresses)
        .map(Cidr::subnet)
        .collect();
    assert_eq!(subnets.len(), 2, "one of each version: {subnets:?}");
}

#[test]
fn mistakes_are_told_with_their_place_and_how_to_mend_them() {
    let link =
        |line: &str| format!("[hosts.a]\n[hosts.b]\n[[links]]\nbetween = [\"a\", \"b\"]\n{line}\n");
    let router = |lines: &str| CHAIN.replace("[routers.r]", &format!("[routers.r]\n{lines}"));
    for (text, place, hint) in [
        (String::new(), "1:1", "[hosts.NAME]"),
        ("[hosts.a]\n[host.b]\n".into(), "2:2", "hosts"),
        ("[hosts.a]\ncolour = 1\n".into(), "2:1", "blocked"),
        ("[hosts.a]\nblocked = [\"udp\", \"quic\"]\n".into(), "2:19", "all-but-443"),
        ("[hosts.\"a b\"]\n".into(), "1:8", "letters"),
        ("[hosts.a]\n[routers.a]\n".into(), "2:10", "rename"),
        (CHAIN.replace("\"b\"]", "\"bob\"]"), "7:17", "there are a, b, r"),
        (CHAIN.replace("\"a\", \"r\"]", "\"a\"]"), "5:11", "between two"),
        (link("impair = \"mild\""), "5:10", "medium"),
        (link("impair = \"loss=2\""), "5:10", "2.5%"),
        (link("mtu = 100"), "5:7", "1280"),
        (link("addresses = [[\"10.0.0.1\"], []]"), "5:15", "10.0.0.1/24"),
        (link("addresses = [[\"10.0.0.1/24\"], []]"), "4:11", "all or none"),
        (link("shape = { rate = \"1mbit\", burst = \"1\", latency = \"1ms\" }"), "5:35", "2kb"),
        (link("[[links]]\nbetween = [\"a\", \"b\"]"), "6:11", "`name`"),
        (router("nat = \"cone\"\noutside = [\"r-b\"]"), "4:7", "full-cone"),
        (router("nat = \"symmetric\""), "4:7", "outside = "),
        (router("nat = \"symmetric\"\noutside = [\"a-b\"]"), "5:12", "a-r, r-b"),
        ("[hosts.a\n".into(), "1:9", "]"),
    ] {
        let said = plan(&text).expect_err(&text);
        assert!(said.starts_with(&format!("lab.toml:{place}: ")), "{text}\n{said}");
        assert!(said.contains(hint), "{text}\n{said}");
    }
}

#[test]
fn the_example_topologies_are_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        let topology = Topology::read(&path).expect("readable");
        let plan = Plan::new(&topology).expect("good");
        assert_eq!(Some(plan.name.as_str()), path.file_stem().and_then(|s| s.to_str()));
        count += 1;
    }
    assert!(count >= 3);
}
