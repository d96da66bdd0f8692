//! What is read, what is refused and where, what is warned of.

use super::*;

fn good(text: &str) -> (Policy, Vec<String>) {
    let (policy, warnings) = policy(text.as_bytes()).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))
    });
    (policy, warnings.iter().map(Finding::to_string).collect())
}

fn bad(text: &str) -> Vec<String> {
    let faults = policy(text.as_bytes()).expect_err(text);
    faults.iter().map(Finding::to_string).collect()
}

const OFFICE: &str = r#"// An office of a dozen people.
{
    "groups": {
        "group:dev": ["ann@example.com", "ben@"],
        "group:ops": ["cid@example.com"], // on call
    },
    "tagOwners": {
        "tag:web": ["group:ops"],
        "tag:db": ["tag:web", "autogroup:admin"],
    },
    "hosts": {"printer": "192.168.7.9", "lab": "10.20.0.0/16"},
    "acls": [
        {"action": "accept", "src": ["group:dev"], "dst": ["tag:web:80,443", "printer:631"]},
        {"action": "accept", "proto": "tcp", "src": ["tag:web"], "dst": ["tag:db:5432"]},
        {"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self:*"]},
    ],
    "grants": [
        {"src": ["group:ops"], "dst": ["*"], "ip": ["*"]},
        {"src": ["group:dev"], "dst": ["autogroup:internet"], "ip": ["tcp:443", "udp:53", "443"]},
    ],
    "autoApprovers": {
        "routes": {"10.20.0.0/16": ["tag:web"]},
        "exitNode": ["group:ops"],
    },
    "tests": [
        {"src": "ann@example.com", "accept": ["tag:web:443"], "deny": ["tag:db:5432"]},
        {"src": "tag:web", "proto": "icmp", "deny": ["printer:*"]},
    ],
    "ssh": [{"action": "check"}],
}"#;

#[test]
fn a_whole_file_is_read_with_its_places() {
    let (policy, warnings) = good(OFFICE);
    assert!(!policy.is_open);
    assert_eq!(policy.groups["group:dev"].len(), 2);
    assert_eq!(policy.tag_owners["tag:db"].len(), 2);
    let places: Vec<_> = policy.grants.iter().map(|g| (g.section, g.index, g.place.line)).collect();
    assert_eq!(
        places,
        [
            (Section::Acls, 0, 13),
            (Section::Acls, 1, 14),
            (Section::Acls, 2, 15),
            (Section::Grants, 0, 18),
            (Section::Grants, 1, 19)
        ]
    );
    let services = |at: usize| {
        let targets = policy.grants[at].targets.iter();
        let shown = targets.map(|target| {
            let list: Vec<_> = target.services.iter().map(Service::to_string).collect();
            format!("{} {}", target.selectors.len(), list.join(" "))
        });
        shown.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        services(0),
        "1 tcp:80 tcp:443 udp:80 udp:443 icmp:* ipv6-icmp:*; 1 tcp:631 udp:631 icmp:* ipv6-icmp:*"
    );
    assert_eq!(services(1), "1 tcp:5432");
    assert_eq!(services(3), "1 *");
    assert_eq!(services(4), "1 icmp:* tcp:443 udp:53 udp:443 ipv6-icmp:*");
    assert_eq!(policy.tests[0].protocols, [6, 17]);
    assert_eq!(policy.tests[1].protocols, [1, 58]);
    assert_eq!(policy.tests[1].deny[0].port, 0);
    assert_eq!(policy.routes.len(), 1);
    assert_eq!(policy.exits.len(), 1);
    assert_eq!(warnings, ["29:5: \"ssh\" is not enforced: nothing here depends on it"]);
}

#[test]
fn pf_08_only_a_file_without_rules_is_open_and_an_empty_list_denies() {
    for text in ["", "  // nothing yet\n", "{}", "{\"groups\": {}}"] {
        let (policy, warnings) = good(text);
        assert!(policy.is_open && policy.grants[0].section == Section::Open, "{text}");
        assert!(warnings[0].contains("everything is allowed"), "{warnings:?}");
    }
    for text in ["{\"acls\": []}", "{\"grants\": []}", "{\"ACLs\": []}"] {
        let (policy, warnings) = good(text);
        assert!(!policy.is_open && policy.grants.is_empty() && warnings.is_empty(), "{text}");
    }
    for text in ["{", "{\"acls\": null}", "{\"acls\": {}}", "[]", "null", "{\"acl\": []}", "\0"] {
        assert!(!bad(text).is_empty());
    }
}

#[test]
fn mistakes_are_told_in_the_order_of_the_file_with_a_remedy() {
    let faults = bad("{\n\"acls\": [\n {\"action\": \"drop\", \"src\": [\"group:x\"],\n \
                      \"dst\": [\"tag:y\", \"web:80\", \"10.0.0.0/40:1\", \"*:99999\"]},\n \
                      {\"action\": \"accept\", \"dst\": [\"*:*\"]}],\n\
                      \"hosts\": {\"a@b\": \"10.0.0.1\", \"c\": 5}, \"nope\": 1}\n");
    let begins = [
        "3:13: an action that is not accept: rules only allow",
        "3:29: \"group:x\" is not defined: define it in groups",
        "4:10: in \"tag:y\": \"y\" is no port",
        "4:19: \"web\" is not in hosts: add it there, or write \"web@\" for a user",
        "4:29: \"10.0.0.0/40\": the number after '/'",
        "4:46: in \"*:99999\": \"99999\" is no port",
        "5:2: a rule without src",
        "6:11: \"a@b\" cannot name a host",
        "6:35: a number stands where a text",
        "6:39: the key \"nope\" is not known: known here are groups, tagOwners",
    ];
    assert_eq!(faults.len(), begins.len(), "{faults:#?}");
    for (fault, begin) in faults.iter().zip(begins) {
        assert!(fault.starts_with(begin), "{fault}");
    }
}

#[test]
fn selectors_stand_only_where_they_mean_something() {
    let rule = |src: &str, dst: &str| {
        format!("{{\"acls\": [{{\"action\": \"accept\", \"src\": [{src}], \"dst\": [{dst}]}}]}}")
    };
    for (src, dst) in [
        ("\"autogroup:internet\"", "\"*:*\""),
        ("\"autogroup:self\"", "\"*:*\""),
        ("\"*\"", "\"autogroup:danger-all:*\""),
        ("\"*\"", "\"*\""),
        ("\"*\"", "\"tag:x:*\""),
        ("\"*:80\"", "\"*:*\""),
        ("5", "\"*:*\""),
    ] {
        assert_eq!(bad(&rule(src, dst)).len(), 1, "{src} {dst}");
    }
    good(&rule("\"autogroup:danger-all\"", "\"autogroup:self:*\", \"autogroup:internet:*\""));
    for groups in ["\"group:a\": [\"group:a\"]", "\"group:a\": [\"10.0.0.1\"]", "\"a\": []"] {
        assert_eq!(bad(&format!("{{\"acls\": [], \"groups\": {{{groups}}}}}")).len(), 1);
    }
    assert!(
        bad("{\"acls\": [], \"hosts\": {\"10.0.0.1\": \"10.0.0.2\"}}")[0].contains("no address")
    );
    let owners = "{\"acls\": [], \"tagOwners\": {\"tag:a\": [\"*\", \"10.0.0.1\", \"tag:b\"]}}";
    assert_eq!(bad(owners).len(), 3);
}

#[test]
fn what_narrows_and_is_not_enforced_leaves_its_rule_out() {
    let text = "{\"grants\": [\n\
        {\"src\": [\"*\"], \"dst\": [\"*\"], \"ip\": [\"*\"], \"srcPosture\": [\"posture:x\"]},\n\
        {\"src\": [\"*\"], \"dst\": [\"*\"], \"ip\": [\"*\"], \"via\": [\"tag:x\"]},\n\
        {\"src\": [\"*\"], \"dst\": [\"*\"], \"app\": {\"example.com/cap\": []}}],\n\
        \"postures\": {}}";
    let (policy, warnings) = good(text);
    assert_eq!(policy.grants.len(), 1);
    assert!(policy.grants[0].targets[0].services.is_empty());
    assert_eq!(warnings.len(), 4, "{warnings:#?}");
    assert!(warnings[0].starts_with("2:") && warnings[0].contains("left out"));
    assert!(bad("{\"acls\": [], \"defaultSrcPosture\": [\"posture:x\"]}")[0].contains("wider"));
}

#[test]
fn old_names_and_any_case_are_read() {
    let text = "{\"ACLs\": [{\"Action\": \"accept\", \"Users\": [\"*\"], \"Ports\": [\"*:22\"]}]}";
    assert_eq!(good(text).0.grants.len(), 1);
    assert!(bad("{\"acls\": [], \"ACLs\": []}")[0].contains("twice"));
}

#[test]
fn host_bits_are_warned_of() {
    let (_, warnings) = good(
        "{\"acls\": [{\"action\": \"accept\", \"src\": [\"10.1.2.3/8\"], \"dst\": [\"*:*\"]}]}",
    );
    assert_eq!(warnings, ["1:40: \"10.1.2.3/8\" means 10.0.0.0/8: write that"]);
}

#[test]
fn numbers_of_everything_are_bounded() {
    let rule = "{\"action\": \"accept\", \"src\": [], \"dst\": []},";
    let rules = |count: usize| format!("{{\"acls\": [{}]}}", rule.repeat(count));
    assert_eq!(good(&rules(RULES_MAX)).0.grants.len(), RULES_MAX);
    assert!(bad(&rules(RULES_MAX + 1))[0].contains("at most 4096"));
    let list = "\"*\",".repeat(LIST_MAX + 1);
    let text = format!("{{\"grants\": [{{\"src\": [{list}], \"dst\": [], \"ip\": []}}]}}");
    assert!(bad(&text)[0].contains("at most 4096"));
    let list = "\"tcp:1\",".repeat(PORTS_MAX + 1);
    let text = format!("{{\"grants\": [{{\"src\": [], \"dst\": [], \"ip\": [{list}]}}]}}");
    assert!(bad(&text)[0].contains("at most 256"));
    let many = "\"x\",".repeat(1000);
    let text = format!("{{\"grants\": [{{\"src\": [{many}], \"dst\": [], \"ip\": []}}]}}");
    assert_eq!(bad(&text).len(), FINDINGS_MAX);
}

#[test]
fn bc_02_only_a_grant_that_says_so_lets_flows_be_compressed() {
    let grant = |more: &str| {
        format!("{{\"grants\": [{{\"src\": [\"*\"], \"dst\": [\"*\"], \"ip\": [\"*\"]{more}}}]}}")
    };
    let compress = |more: &str| good(&grant(more)).0.grants[0].compress;
    assert!(!compress("") && !compress(", \"compress\": false"));
    assert!(compress(", \"compress\": true"));
    for value in ["1", "\"yes\"", "null", "[true]"] {
        let faults = bad(&grant(&format!(", \"compress\": {value}")));
        assert!(faults[0].contains("true or false"), "{faults:?}");
    }
    assert!(!Policy::open().grants[0].compress);
    let acl = "{\"acls\": [{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"], \
               \"compress\": true}]}";
    assert!(bad(acl)[0].contains("not known"), "acls are as others write them");
}

/// Files of real users: what concerns no packets, or means nobody here, is told and no more.
#[test]
fn what_means_something_to_others_is_warned_of_and_refuses_no_file() {
    let (policy, warnings) = good(
        r##"{"tagOwners": {"tag:tv": ["dad@", "autogroup:internet"]},
"attrConfig": {"custom:jit": {}},
"acls": [{"#ha-meta": {"name": "TV", "open": true},
"action": "accept", "src": ["mum@", "autogroup:shared"],
"dst": ["tag:tv:*", "svc:web:443"]}],
"grants": [{"src": ["mum@"], "dst": ["svc:web", "tag:tv"], "ip": ["*"]}]}"##,
    );
    assert_eq!(policy.tag_owners["tag:tv"].len(), 1);
    let sources: Vec<_> = policy.grants.iter().map(|grant| grant.sources.len()).collect();
    assert_eq!(sources, [1, 1]);
    let named =
        |at: usize| policy.grants[at].targets.iter().map(|t| t.selectors.len()).sum::<usize>();
    assert_eq!([named(0), named(1)], [1, 1]);
    assert_eq!(warnings.len(), 6, "{warnings:#?}");
    for what in
        ["autogroup:internet", "attrConfig", "#ha-meta", "autogroup:shared", "svc:web"].iter()
    {
        assert!(warnings.iter().any(|warning| warning.contains(what)), "{what}: {warnings:#?}");
    }
    // A misspelt key is a mistake as ever, and so is a service that would be a source.
    assert!(bad("{\"acls\": [], \"grups\": {}}")[0].contains("not known"));
    assert!(bad("{\"grants\": [{\"src\": [\"svc:a\"], \"dst\": [], \"ip\": []}]}").len() == 1);
}

#[test]
fn tests_of_what_has_no_ports_need_none() {
    let test = |more: &str| {
        format!(
            "{{\"acls\": [], \"tagOwners\": {{\"tag:vm\": []}}, \
             \"tests\": [{{\"src\": \"ann@\", {more}}}]}}"
        )
    };
    for more in [
        "\"proto\": \"1\", \"accept\": [\"tag:vm\"]",
        "\"proto\": \"icmp\", \"deny\": [\"tag:vm\", \"10.0.0.0/8\", \"fd00::1\", \"tag:vm:0\"]",
        "\"accept\": [\"tag:vm\"], \"deny\": [\"10.0.0.1:443\"]",
    ] {
        let (policy, _) = good(&test(more));
        let targets = policy.tests[0].accept.iter().chain(&policy.tests[0].deny);
        assert!(targets.clone().all(|target| target.port == 0 || target.port == 443), "{more}");
        assert!(targets.count() > 0, "{more}");
    }
    for more in [
        "\"deny\": [\"tag:vm\"]",
        "\"proto\": \"tcp\", \"accept\": [\"tag:vm\"]",
        "\"proto\": \"icmp\", \"accept\": [\"tag:vm:80-90\"]",
    ] {
        assert!(bad(&test(more))[0].contains("has not one port"), "{more}");
    }
}

#[test]
fn sets_of_addresses_are_added_and_removed_in_turn_and_named_in_rules() {
    let file = |sets: &str, name: &str| {
        format!(
            "{{\"hosts\": {{\"nas\": \"10.9.0.9\"}}, \"ipsets\": {{{sets}}},\
             \"acls\": [{{\"action\": \"accept\",\
             \"src\": [\"{name}\"], \"dst\": [\"{name}:443\"]}}]}}"
        )
    };
    let all = "\"ipset:all\": [\"add ipset:site\", \"10.9.0.1-10.9.0.3\", \"host:nas\", \
               \"remove 10.1.0.0/31\"], \"ipset:site\": [\"10.1.0.0/30\", \"add fd00::/64\"]";
    let (policy, warnings) = good(&file(all, "ipset:all"));
    assert_eq!(warnings, [""; 0]);
    let shown = |policy: &Policy| match &policy.grants[0].sources[..] {
        [Selector::Set(ranges)] => {
            ranges.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        shown(&policy),
        "10.1.0.2-10.1.0.3 10.9.0.1-10.9.0.3 10.9.0.9 fd00::-fd00::ffff:ffff:ffff:ffff"
    );
    // The last word counts.
    let turned = "\"ipset:x\": [\"remove 10.0.0.1\", \"10.0.0.0/31\"]";
    assert_eq!(shown(&good(&file(turned, "ipset:x")).0), "10.0.0.0-10.0.0.1");
    for (sets, name, what) in [
        ("", "ipset:none", "is not defined"),
        ("\"ipset:a\": [\"ipset:b\"], \"ipset:b\": [\"ipset:a\"]", "ipset:a", "has a mistake"),
        ("\"ipset:a\": [\"subtract 10.0.0.1\"]", "ipset:a", "has a mistake"),
        ("\"ipset:a\": [\"10.0.0.0/99\"]", "ipset:a", "has a mistake"),
    ] {
        assert!(bad(&file(sets, name))[0].contains(what), "{sets}");
    }
    // Where no rule names it, a mistake is a warning: it was one before sets were read.
    let (_, warnings) = good("{\"acls\": [], \"ipsets\": {\"ipset:a\": [\"ipset:a\"]}}");
    assert!(warnings[0].contains("\"ipset:a\" is passed over"), "{warnings:?}");
    // Sixteen levels of two are worked out once each, not 65,536 times.
    let mut deep = "\"ipset:s0\": [\"10.0.0.1\"]".to_owned();
    for level in 1..16 {
        let entries = vec![format!("\"ipset:s{}\"", level - 1); 64].join(",");
        deep += &format!(", \"ipset:s{level}\": [{entries}]");
    }
    assert_eq!(shown(&good(&file(&deep, "ipset:s15")).0), "10.0.0.1");
}

#[test]
fn a_bare_user_of_a_group_is_read_as_one_and_a_misspelt_host_is_none() {
    let text = "{\"groups\": {\"group:a\": [\"Ann\"]}, \"acls\": [{\"action\": \"accept\", \
                \"src\": [\"ann\"], \"dst\": [\"ann:*\"]}]}";
    let (policy, warnings) = good(text);
    assert_eq!(policy.grants[0].sources, [Selector::User("ann@".to_owned())]);
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let host = "{\"acls\": [{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"nsa:445\"]}]}";
    assert!(bad(host)[0].contains("is not in hosts"));
    let number = |number: &str| {
        format!(
            "{{\"acls\": [{{\"action\": \"accept\", \"proto\": {number}, \"src\": [], \
             \"dst\": [\"ann@:22\"]}}]}}"
        )
    };
    assert_eq!(good(&number("6")).0.grants[0].targets[0].services[0].protocol, Some(6));
    assert!(!bad(&number("256")).is_empty() && !bad(&number("1.5")).is_empty());
}
