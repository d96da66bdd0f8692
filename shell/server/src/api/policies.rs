//! The policy: the text that holds, what is wrong with another one, and every one of before.

use ::policy::{Finding, Place};
use serde::Deserialize;
use serde_json::{Value, json};

use super::handlers::Answer;
use super::{Call, Problem, Reply};
use crate::app::Unset;

pub(super) fn show(call: &Call) -> Answer {
    let policy = call.app.store().policy()?;
    let (version, text) = policy.map_or((0, String::new()), |p| (p.version, p.text));
    let readable = call.app.network().is_policy_readable();
    let reply = json!({ "schema": 1, "version": version, "text": text, "readable": readable });
    Ok(Reply::Json(reply))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPolicy {
    text: String,
    #[serde(default)]
    if_version: Option<u64>,
}

fn findings(findings: &[Finding]) -> Value {
    let shown = findings.iter().map(|finding| {
        let Place { line, column } = finding.place;
        json!({ "line": line, "column": column, "what": finding.what, "mend": finding.mend })
    });
    shown.collect()
}

/// Every mistake: the first lines for people, all of them for programs.
fn mistaken(found: &[Finding]) -> Problem {
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    let problem = Problem::new(400, "the policy is refused; the last one holds", lines.join("; "));
    problem.with("findings", findings(found))
}

/// Makes a text the policy, if it is one.
fn hold(call: &Call, text: &str, if_version: Option<u64>) -> Answer {
    let set = call.app.set_policy(text, if_version, &call.actor);
    let (version, checked) = set.map_err(|why| match why {
        Unset::Findings(found) => mistaken(&found),
        Unset::Store(error) => error.into(),
    })?;
    let warnings = findings(&checked.warnings);
    Ok(Reply::Json(json!({ "schema": 1, "version": version, "warnings": warnings })))
}

pub(super) fn set(call: &Call) -> Answer {
    let NewPolicy { text, if_version } = call.json()?;
    hold(call, &text, if_version)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

pub(super) fn check(call: &Call) -> Answer {
    let Text { text } = call.json()?;
    let checked = call.app.check_policy(&text).map_err(|found| mistaken(&found))?;
    let warnings = findings(&checked.warnings);
    let [rules, tests, nodes] = checked.counts;
    Ok(Reply::Json(json!({
        "schema": 1, "rules": rules, "tests": tests, "nodes": nodes, "warnings": warnings
    })))
}

/// Versions, the newest first: who set each, and when.
pub(super) fn history(call: &Call) -> Answer {
    let limit = u32::try_from(call.number("limit")?.unwrap_or(100)).unwrap_or(u32::MAX);
    let versions = call.app.store().policy_versions(call.number("before")?, limit)?;
    Ok(Reply::Json(json!({ "schema": 1, "versions": versions })))
}

/// One version with its text.
pub(super) fn version(call: &Call) -> Answer {
    let (found, text) = call.app.store().policy_version(call.id)?;
    Ok(Reply::Json(json!({
        "schema": 1, "version": found.version, "actor": found.actor, "created": found.created,
        "text": text
    })))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Restored {
    if_version: Option<u64>,
}

/// Makes an earlier text the policy again, as a new version. It is checked as any other is: what
/// was good once may speak of users and nodes that are no more.
pub(super) fn restore(call: &Call) -> Answer {
    let Restored { if_version } =
        if call.body.is_empty() { Restored::default() } else { call.json()? };
    let (_, text) = call.app.store().policy_version(call.id)?;
    hold(call, &text, if_version)
}
