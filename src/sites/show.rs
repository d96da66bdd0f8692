//! What `warren sites` prints, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clouds::{Gateway, Survey};
use serde_json::{Value, json};
use sites::{Action, File, MONTH_H, Numbering, Provider, Step, Topology, links};

use crate::admin::{counted, plain, table};

pub(super) fn texts<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// The plan with its steps.
pub(super) fn plan(file: &File, numbering: &Numbering, steps: &[Step]) -> Value {
    let sites: Vec<Value> = file
        .sites
        .iter()
        .zip(&numbering.places)
        .map(|(site, place)| {
            json!({ "name": site.name, "provider": site.provider.word(), "number": place.number,
                    "networks": texts(&place.networks), "known_as": texts(&place.known_as),
                    "gateways": texts(&place.gateways),
                    "shared": place.shared.map(|address| address.to_string()) })
        })
        .collect();
    let joined: Vec<Value> = links(file)
        .iter()
        .map(|link| json!([file.sites[link.from].name, file.sites[link.to].name]))
        .collect();
    let room = numbering.capacity;
    json!({ "schema": 1, "network": file.network, "range": file.range.to_string(), "sites": sites,
            "links": joined, "steps": steps.iter().map(step).collect::<Vec<_>>(),
            "capacity": { "providers": room.providers, "sites": room.sites,
                          "machines": room.machines } })
}

fn step(step: &Step) -> Value {
    let mut changes = Vec::new();
    let action = match &step.action {
        Action::Create => "create",
        Action::Delete => "delete",
        Action::Refuse => "refuse",
        Action::Change(list) => {
            for (key, before, after) in list {
                changes.push(json!({ "key": key, "before": before, "after": after }));
            }
            "change"
        }
    };
    json!({ "action": action, "site": step.id.site, "kind": step.id.kind.word(),
            "name": step.id.name, "changes": changes, "properties": step.properties,
            "why": step.why })
}

/// The numbering plan for people.
pub(super) fn numbers(file: &File, numbering: &Numbering) -> String {
    let all = plan(file, numbering, &[]);
    let columns = [
        ("SITE", "name"),
        ("PROVIDER", "provider"),
        ("NETWORKS", "networks"),
        ("KNOWN AS", "known_as"),
        ("GATEWAYS", "gateways"),
    ];
    let room = numbering.capacity;
    let joined = links(file).len();
    let mut text = table(&all["sites"], &columns);
    let _ = writeln!(
        text,
        "{}; room for {} providers, {} sites each, {} machines each",
        counted(&json!(joined), "link"),
        room.providers,
        room.sites,
        room.machines
    );
    if file.topology != Topology::Mesh {
        let name = |site: usize| &file.sites[site].name;
        for link in links(file) {
            let _ = writeln!(text, "{} is joined with {}", name(link.to), name(link.from));
        }
    }
    let made = file.sites.iter().find(|site| site.provider != Provider::Ssh);
    if let (Some(site), None) = (made, &file.download) {
        let _ = writeln!(
            text,
            "note: the image of {} must have {}, for the file says no download",
            site.name, file.program
        );
    }
    text
}

/// What gateways cost in a month, as far as the file says it.
pub(super) fn month(file: &File) -> Value {
    let month = sites::month(file);
    let sum = month.unknown.is_empty().then_some(month.hundredths as f64 / 100.0);
    json!({ "hours": MONTH_H, "gateways": month.gateways, "sum": sum, "unknown": month.unknown })
}

/// The same for people.
pub(super) fn month_text(file: &File) -> String {
    let month = sites::month(file);
    let sum = format!("{}.{:02}", month.hundredths / 100, month.hundredths % 100);
    match (&month.unknown[..], month.gateways) {
        ([], count) => format!("a month of {MONTH_H} hours: {sum} for {count} gateways\n"),
        (_, 0) => "prices unknown; the file has no [prices]\n".to_owned(),
        (unknown, count) => format!(
            "a month of {MONTH_H} hours: {sum} for {count} gateways, and prices unknown of {}\n",
            unknown.join(", ")
        ),
    }
}

/// The steps for people.
pub(super) fn steps(steps: &[Step]) -> String {
    if steps.is_empty() {
        return "nothing is to be done\n".to_owned();
    }
    steps.iter().map(|step| format!("{step}\n")).collect()
}

/// The gateways as they are.
pub(super) fn status(file: &File, numbering: &Numbering, survey: &Survey) -> Value {
    let mut rows = Vec::new();
    for gateway in survey.gateways(file) {
        let index = file.index(&gateway.site).unwrap_or_default();
        let known_as = texts(&numbering.places[index].known_as);
        let state = &gateway.state;
        let paths: Vec<String> = peers(file, survey, &gateway)
            .iter()
            .map(|(name, peer)| {
                format!("{name}: {}", peer["path"]["kind"].as_str().unwrap_or("none"))
            })
            .collect();
        rows.push(json!({ "site": gateway.site, "gateway": gateway.name, "online": gateway.online,
                          "state": state, "known_as": known_as, "paths": paths,
                          "leads": survey.leads(file, numbering, &gateway),
                          "health": gateway.status["health"] }));
    }
    let silent: Vec<String> =
        survey.unreachable.iter().map(|(_, error)| plain(&error.to_string())).collect();
    json!({ "schema": 1, "network": file.network, "gateways": rows, "silent": silent })
}

/// Peers of a gateway that are gateways as well, and joined with it.
fn peers<'s>(file: &File, survey: &Survey, of: &'s Gateway) -> Vec<(String, &'s Value)> {
    let is_joined = |other: &Gateway| {
        let sites = [&of.site, &other.site].map(|site| file.index(site).unwrap_or_default());
        file.topology == Topology::Mesh
            || sites[0] == sites[1]
            || links(file).iter().any(|l| sites == [l.from, l.to] || sites == [l.to, l.from])
    };
    let gateways = survey.gateways(file).into_iter().filter(is_joined);
    let names: Vec<String> = gateways.map(|one| one.name).collect();
    let peers = of.status["peers"].as_array().into_iter().flatten();
    peers
        .filter_map(|peer| Some((peer["name"].as_str()?.to_owned(), peer)))
        .filter(|(name, _)| names.contains(name))
        .collect()
}

/// The same for people.
pub(super) fn status_text(value: &Value) -> String {
    let columns = [
        ("SITE", "site"),
        ("GATEWAY", "gateway"),
        ("ONLINE", "online"),
        ("STATE", "state"),
        ("LEADS", "leads"),
        ("KNOWN AS", "known_as"),
        ("PATHS", "paths"),
    ];
    let mut text = table(&value["gateways"], &columns);
    for silent in value["silent"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "no answer: {}", silent.as_str().unwrap_or_default());
    }
    text
}

/// Every directed path between gateways.
pub(super) fn quality(file: &File, survey: &Survey) -> Value {
    let mut rows = Vec::new();
    for gateway in survey.gateways(file) {
        for (name, peer) in peers(file, survey, &gateway) {
            let loss = &peer["link"]["out"]["loss_before"];
            rows.push(json!({ "from": gateway.name, "to": name, "path": peer["path"]["kind"],
                              "rtt_ms": peer["rtt_ms"], "loss": loss,
                              "bandwidth": peer["bandwidth"] }));
        }
    }
    json!({ "schema": 1, "network": file.network, "paths": rows })
}

/// Leaves the path between these gateways, with what its gateway has just said of it.
pub(super) fn measured(value: &mut Value, ends: [String; 2], told: &Value) {
    let [from, to] = ends;
    let mut rows = value["paths"].as_array().into_iter().flatten();
    let known = rows.find(|row| row["from"] == from && row["to"] == to);
    let mut row = known.cloned().unwrap_or_else(|| json!({ "from": from, "to": to }));
    let mut bandwidth = told.clone();
    if let Some(fields) = bandwidth.as_object_mut() {
        fields.retain(|field, _| field != "schema" && field != "peer");
    }
    row["bandwidth"] = bandwidth;
    value["paths"] = json!([row]);
}

/// The same for people.
pub(super) fn quality_text(value: &Value) -> String {
    let columns = [
        ("FROM", "from"),
        ("TO", "to"),
        ("PATH", "path"),
        ("RTT MS", "rtt_ms"),
        ("LOSS", "loss"),
        ("AVAILABLE", "available"),
        ("AGE", "age"),
        ("COST", "cost"),
    ];
    let row = |path: &Value| {
        let bandwidth = &path["bandwidth"];
        let mut row = path.clone();
        row["available"] = json!(crate::bandwidth::line(bandwidth));
        row["age"] = json!(bandwidth["age_s"].as_f64().map(|age_s| format!("{age_s:.0} s")));
        let cost = bandwidth["cost_bytes"].as_f64();
        row["cost"] = json!(cost.map(|bytes| format!("{:.2} MB", bytes / 1e6)));
        row
    };
    let rows: Vec<Value> = value["paths"].as_array().into_iter().flatten().map(row).collect();
    table(&json!(rows), &columns)
}

/// Hours of the paths between gateways of this file, as the server kept them, by name.
pub(super) fn history(file: &File, told: &Value, nodes: &Value) -> Value {
    let prefix = format!("{}-", file.network);
    let named = |id: &Value| -> Option<String> {
        let mut nodes = nodes["nodes"].as_array().into_iter().flatten();
        let name = nodes.find(|node| node["id"] == *id)?["name"].as_str()?;
        name.starts_with(&prefix).then(|| name.to_owned())
    };
    let hours = told["hours"].as_array().into_iter().flatten();
    let named = hours.filter_map(|hour| {
        let mut hour = hour.clone();
        hour["from"] = json!(named(&hour["node"])?);
        hour["to"] = json!(named(&hour["peer"])?);
        Some(hour)
    });
    json!({ "schema": 1, "network": file.network, "hours": named.collect::<Vec<Value>>(),
            "older_left_out": told["older_left_out"] == true })
}

/// The same for people: a line for each path, with the least and the most of its hours.
pub(super) fn history_text(value: &Value) -> String {
    let mut paths: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for hour in value["hours"].as_array().into_iter().flatten() {
        let name = |end: &str| hour[end].as_str().unwrap_or_default().to_owned();
        paths.entry((name("from"), name("to"))).or_default().push(hour);
    }
    let rows: Vec<Value> = paths
        .iter()
        .map(|((from, to), hours)| {
            let all = |key: &str| hours.iter().filter_map(|hour| hour[key].as_u64()).collect();
            let span = |least: &str, most: &str, unit: f64, places: usize| {
                let [least, most]: [Vec<u64>; 2] = [all(least), all(most)];
                let ends = least.iter().min().zip(most.iter().max());
                ends.map(|(least, most)| {
                    let [least, most] = [least, most].map(|value| *value as f64 / unit);
                    format!("{least:.places$} to {most:.places$}")
                })
            };
            let losses: Vec<u64> = all("loss_ppm_max");
            let worst = losses.iter().max().map(|ppm| format!("{:.2}", *ppm as f64 / 1e4));
            json!({ "from": from, "to": to, "hours": hours.len(), "worst": worst,
                    "rtt_ms": span("rtt_us_min", "rtt_us_max", 1e3, 1),
                    "available": span("low_bps", "high_bps", 1e6, 1) })
        })
        .collect();
    let columns = [
        ("FROM", "from"),
        ("TO", "to"),
        ("HOURS", "hours"),
        ("RTT MS", "rtt_ms"),
        ("WORST LOSS %", "worst"),
        ("AVAILABLE MBIT/S", "available"),
    ];
    let mut text = table(&json!(rows), &columns);
    if value["older_left_out"] == true {
        text += "older hours were left out, for one answer has 20,000; ask for fewer days\n";
    }
    text
}
