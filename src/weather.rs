//! How the links to peers are, for people: a line each, below the table of `warren status`.

use serde_json::{Value, json};

use crate::admin::table;
use crate::client::text;

/// The links that are known, as a table; empty where there is none.
pub(crate) fn links(status: &Value) -> String {
    let peers = status["peers"].as_array().into_iter().flatten();
    let rows: Vec<Value> = peers.filter(|peer| peer["link"].is_object()).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let columns = [
        ("LINK", "name"),
        ("LOST OUT (LEFT)", "out"),
        ("LOST IN (LEFT)", "in"),
        ("REPAIR", "state"),
        ("ADDS", "ratio"),
        ("LATE", "late"),
        ("TOLD", "told"),
    ];
    format!("\n{}", table(&Value::Array(rows), &columns))
}

/// Letters of a name, or of a key, that are shown.
const NAME_SHOWN: usize = 12;

fn row(peer: &Value) -> Value {
    let link = &peer["link"];
    let name = text(peer, "name");
    let cut = name.char_indices().nth(NAME_SHOWN).map_or(name, |(at, _)| &name[..at]);
    let ages = ["out", "in"].map(|way| link[way]["age_s"].as_f64());
    let age_s = ages.into_iter().flatten().reduce(f64::min);
    json!({
        "name": cut,
        "out": lost(&link["out"]),
        "in": lost(&link["in"]),
        "state": text(&link["repair"], "state"),
        "ratio": percent(&link["repair"]["ratio"]),
        "late": link["in"]["reorder_ms"].as_f64().map(|ms| format!("{ms:.1} ms")),
        "told": age_s.map(|age_s| match ago(&json!(age_s)) {
            now if now.is_empty() => "now".to_owned(),
            ago => ago.trim_start_matches([',', ' ']).to_owned(),
        }),
    })
}

/// How long ago something was told that is not of now.
pub(crate) fn ago(age_s: &Value) -> String {
    match age_s.as_f64().map(|age_s| age_s as u64) {
        None | Some(0..60) => String::new(),
        Some(seconds @ 60..7_200) => format!(", {} min ago", seconds / 60),
        Some(seconds) => format!(", {} h ago", seconds / 3_600),
    }
}

/// How many pieces waited for their order, and for how long in the mean.
pub(crate) fn waited(way: &Value) -> Option<String> {
    let [count, ms] = ["order_waited", "order_waited_ms"].map(|field| way[field].as_f64());
    let count = count?;
    let ms = ms.unwrap_or_default();
    Some(if count > 0.0 { format!("{count}, {:.1} ms each", ms / count) } else { "0".to_owned() })
}

/// Before repair, and after it.
fn lost(way: &Value) -> Option<String> {
    let [before, after] = ["loss_before", "loss_after"].map(|field| percent(&way[field]));
    Some(format!("{} ({})", before?, after?))
}

fn percent(share: &Value) -> Option<String> {
    let percent = share.as_f64()? * 100.0;
    Some(if percent > 0.0 && percent < 0.01 {
        "<0.01 %".to_owned()
    } else {
        format!("{percent:.2} %")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_line_and_what_is_not_known_is_none() {
        let key = "mXU2Wd3kQ1lLhLx9Fh0m0d2bCe4f5g6h7i8j9k0l1m2=";
        let status = json!({ "peers": [
            { "name": "plain", "link": null },
            { "name": key, "link": {
                "cipher": "AES-256-GCM", "chunk_bytes": 1368,
                "out": { "loss_before": 0.0251, "loss_after": 0.00001, "age_s": 190.0 },
                "in": { "loss_before": 0.01, "loss_after": 0.0, "reorder_ms": 14.96,
                        "age_s": 200.0, "order_waited": 12, "order_waited_ms": 30.0 },
                "repair": { "ratio": 0.1712, "state": "on", "why": "the path loses datagrams" },
            } },
        ] });
        let due = [
            "",
            "LINK          LOST OUT (LEFT)   LOST IN (LEFT)   REPAIR  ADDS     LATE     TOLD",
            "mXU2Wd3kQ1lL  2.51 % (<0.01 %)  1.00 % (0.00 %)  on      17.12 %  15.0 ms  3 min ago",
        ];
        assert_eq!(links(&status).lines().collect::<Vec<_>>(), due);
        assert_eq!(links(&json!({ "peers": [{ "name": "plain", "link": null }] })), "");
    }
}
