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
        ("CIPHER", "cipher"),
        ("CHUNK", "chunk"),
        ("LOST OUT", "out"),
        ("LOST IN", "in"),
        ("REPAIR", "ratio"),
        ("DISORDER", "disorder"),
        ("WAITED", "waited"),
        ("REPAIR IS", "state"),
    ];
    format!("\n{}", table(&Value::Array(rows), &columns))
}

fn row(peer: &Value) -> Value {
    let link = &peer["link"];
    let chunk = link["chunk_bytes"].as_u64().filter(|bytes| *bytes > 0);
    json!({
        "name": peer["name"],
        "cipher": text(link, "cipher"),
        "chunk": chunk.map(|bytes| format!("{bytes} B")),
        "out": lost(&link["out"]),
        "in": lost(&link["in"]),
        "ratio": percent(&link["repair"]["ratio"]),
        "disorder": link["in"]["reorder_ms"].as_f64().map(|ms| format!("{ms:.1} ms")),
        "waited": waited(&link["in"]),
        "state": text(&link["repair"], "state"),
    })
}

/// How many pieces waited for their order, and for how long in the mean.
pub(crate) fn waited(way: &Value) -> Option<String> {
    let [count, ms] = ["order_waited", "order_waited_ms"].map(|field| way[field].as_f64());
    let (count, ms) = (count?, ms.unwrap_or_default());
    Some(if count > 0.0 { format!("{count}, {:.1} ms each", ms / count) } else { "0".to_owned() })
}

/// Before repair, and after it.
fn lost(way: &Value) -> Option<String> {
    let [before, after] = ["loss_before", "loss_after"].map(|field| percent(&way[field]));
    before.zip(after).map(|(before, after)| format!("{before} > {after}"))
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
        let status = json!({ "peers": [
            { "name": "plain", "link": null },
            { "name": "b", "link": {
                "cipher": "AES-256-GCM", "chunk_bytes": 1368,
                "out": { "loss_before": 0.0251, "loss_after": 0.00001 },
                "in": { "loss_before": 0.01, "loss_after": 0.0, "reorder_ms": 14.96,
                        "order_waited": 12, "order_waited_ms": 30.0 },
                "repair": { "ratio": 0.1712, "state": "on: the path loses datagrams at random" },
            } },
        ] });
        assert_eq!(
            links(&status),
            "\n\
LINK  CIPHER       CHUNK   LOST OUT          LOST IN          REPAIR   DISORDER  WAITED           \
             REPAIR IS
b     AES-256-GCM  1368 B  2.51 % > <0.01 %  1.00 % > 0.00 %  17.12 %  15.0 ms   12, 2.5 ms each  \
             on: the path loses datagrams at random
"
        );
        assert_eq!(links(&json!({ "peers": [{ "name": "plain", "link": null }] })), "");
    }
}
