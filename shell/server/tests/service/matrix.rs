//! The relay's answers to who may be here and who may know of whom: every kind of machine, and
//! every pair under policies of every kind (threats RL-01, RL-08).

use std::collections::BTreeSet;
use std::time::Duration;

use control::relay::Refused;
use dial::SystemRandom;
use dial::proxy::Proxies;
use dial::relay::{Connected, Failed, Way, connect};
use noise::{PrivateKey, PublicKey};
use serde_json::{Value, json};
use server::store::Enrolment;
use wire::relay::{Frame, Notice};

use crate::relay::{Joined, join_with, last_word, open, send, soon};
use crate::stage::Stage;

const TAGS: [&str; 3] = ["tag:a", "tag:b", "tag:c"];
/// "Gone" is said so often a second; so many targets there are.
const GONE_WITHIN: Duration = Duration::from_millis(1100);

/// Who may know of whom, by place in [`TAGS`], each pair both ways.
type Pairs = &'static [(usize, usize)];

const EVERYBODY: Pairs = &[(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)];

/// Policies as rules, and what each means. `A4` and `B6` are addresses.
const POLICIES: [(&str, Pairs); 10] = [
    ("", EVERYBODY),
    (r#""acls": []"#, &[]),
    (r#""acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]"#, EVERYBODY),
    (
        r#""acls": [{"action": "accept", "src": ["tag:a"], "dst": ["tag:b:22"], "proto": "tcp"}]"#,
        &[(0, 1)],
    ),
    (r#""acls": [{"action": "accept", "src": ["tag:a"], "dst": ["tag:a:*"]}]"#, &[(0, 0)]),
    (
        r#""acls": [{"action": "accept", "src": ["tag:a", "tag:b"], "dst": ["tag:c:*"]}]"#,
        &[(0, 2), (1, 2)],
    ),
    (
        r#""grants": [{"src": ["tag:c"], "dst": ["tag:b"], "ip": ["icmp:*"]},
                      {"src": ["tag:b"], "dst": ["tag:a"], "ip": ["udp:53"]}]"#,
        &[(1, 2), (0, 1)],
    ),
    // Of senders only the first has A4, and of targets only the second has B6.
    (r#""acls": [{"action": "accept", "src": ["A4"], "dst": ["B4:*"]}]"#, &[(0, 1)]),
    (r#""acls": [{"action": "accept", "src": ["A4"], "dst": ["B6:*"]}]"#, &[]),
    // Nobody has these tags' addresses by this rule, since an owner's nodes have none.
    (r#""acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["*:*"]}]"#, &[]),
];

fn text(rules: &str, senders: &[Joined], targets: &[Joined]) -> String {
    let address =
        |of: &Joined, family: usize| of.node.map.as_ref().unwrap().me.addresses[family].to_string();
    let rules = rules
        .replace("A4", &address(&senders[0], 0))
        .replace("B4", &address(&targets[1], 0))
        .replace("B6", &address(&targets[1], 1));
    if rules.is_empty() {
        return "{}".to_owned();
    }
    format!("{{\"tagOwners\": {{\"tag:a\": [], \"tag:b\": [], \"tag:c\": []}},\n{rules}}}")
}

/// Whom the relay says to be away, of those that are sent to.
fn gone(at: &mut Connected, to: &[PublicKey]) -> BTreeSet<PublicKey> {
    to.iter().for_each(|key| send(at, *key, &[4; 100]));
    let mut gone = BTreeSet::new();
    // What came in one read is answered before absence is told: the second answer is behind both.
    for number in [1; 2] {
        at.say(&Frame::Ping(&[number; 8]), soon()).unwrap();
        at.wait(soon(), |frame| match frame {
            Frame::Gone(key) => {
                gone.insert(PublicKey(**key));
                None
            }
            Frame::Pong(_) => Some(()),
            _ => None,
        })
        .unwrap();
    }
    gone
}

#[test]
fn rl_08_who_is_told_that_somebody_is_away_is_who_may_see_them() {
    let stage = Stage::new();
    let tagged = |tag: &str| join_with(&stage, "node", &json!({ "tags": [tag] }));
    // Targets never connect; each sender sends to all of them, to each other and to nobody.
    let (senders, targets) = (TAGS.map(tagged), TAGS.map(tagged));
    let mut streams = senders.each_ref().map(|node| node.connect(&stage));
    let keys = targets.each_ref().map(Joined::public);
    let mut said = 0;
    for (rules, pairs) in POLICIES {
        let policy = text(rules, &senders, &targets);
        stage.call("PUT", "/api/v1/policy", &json!({ "text": policy }), 200);
        std::thread::sleep(GONE_WITHIN);
        for (from, stream) in streams.iter_mut().enumerate() {
            let is_told = |to: &usize| pairs.iter().any(|p| *p == (from, *to) || *p == (*to, from));
            let is_address = rules.contains("A4");
            let told = (0..3).filter(|to| is_told(to) && (!is_address || from == 0));
            let wanted: BTreeSet<PublicKey> = told.map(|to| keys[to]).collect();
            let others =
                senders.iter().map(Joined::public).filter(|k| *k != senders[from].public());
            let to: Vec<PublicKey> = others.chain(keys).chain([PublicKey([9; 32])]).collect();
            assert_eq!(gone(stream, &to), wanted, "{} under {policy}", TAGS[from]);
            said += wanted.len();
        }
    }
    assert_eq!(said, 9 + 9 + 2 + 1 + 4 + 4 + 1, "it is said where it may be");
}

/// What an attempt to connect comes to: taken, or refused with which word.
fn attempt(stage: &Stage, node: &Joined, key: &PrivateKey) -> Result<(), Option<Notice>> {
    match connect(&node.relay(stage), key, &Proxies::default(), Way::Own) {
        Ok(_) => Ok(()),
        Err(Failed::Refused(Refused::Verdict(notice))) => Err(notice),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn rl_08_rl_01_who_is_admitted_is_a_member_in_good_standing_whatever_the_policy() {
    let stage = Stage::with(Enrolment { needs_approval: true, lifetime_s: None });
    let joined = |name: &str| join_with(&stage, name, &json!({}));
    let id = |node: &Joined| node.node.map.as_ref().unwrap().me.id.0;
    let post = |node: &Joined, what: &str| {
        stage.call("POST", &format!("/api/v1/nodes/{}/{what}", id(node)), &Value::Null, 200);
    };
    let refused = Err(Some(Notice::NotMember));
    let [good, waits, expires, goes, turns] =
        ["good", "waits", "expires", "goes", "turns"].map(joined);
    for node in [&good, &expires, &goes, &turns] {
        assert_eq!(attempt(&stage, node, &node.key), refused, "before it was let in");
        post(node, "approve");
        assert_eq!(attempt(&stage, node, &node.key), Ok(()));
    }
    assert_eq!(attempt(&stage, &waits, &waits.key), refused, "it waits");
    assert_eq!(attempt(&stage, &good, &PrivateKey::generate(&mut SystemRandom)), refused);
    // Under a policy that lets it speak with nobody, a member is one still.
    stage.call("PUT", "/api/v1/policy", &json!({ "text": "{\"acls\": []}" }), 200);
    assert_eq!(attempt(&stage, &good, &good.key), Ok(()));

    let mut streams = [&expires, &goes].map(|node| open(&node.relay(&stage), &node.key));
    post(&expires, "expire");
    stage.call("DELETE", &format!("/api/v1/nodes/{}", id(&goes)), &Value::Null, 204);
    for (stream, node) in streams.iter_mut().zip([&expires, &goes]) {
        assert_eq!(last_word(stream), Some(Notice::NotMember), "it is cut");
        assert_eq!(attempt(&stage, node, &node.key), refused, "and stays out");
    }
    // Of two keys of one machine only the newest is good.
    let next = PrivateKey::generate(&mut SystemRandom);
    assert_eq!(attempt(&stage, &turns, &next), refused);
    turns.node.membership.rotate(next.public());
    let begin = std::time::Instant::now();
    while attempt(&stage, &turns, &next).is_err() {
        assert!(begin.elapsed() < crate::stage::PATIENCE, "the new key is good");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(attempt(&stage, &turns, &turns.key), refused, "the old one is none any more");
}
