//! Each rule on small sources that break it, and on some that do not.

use super::*;

fn rules_broken_by(path: &str, text: &str) -> Vec<&'static str> {
    let source = Source::new(path, text);
    RULES.iter().flat_map(|rule| rule(&source)).map(|finding| finding.rule).collect()
}

#[test]
fn sizes_are_found() {
    let lines = |count: usize| "//! Essay.\n".to_owned() + &"\n".repeat(count);
    assert_eq!(rules_broken_by("src/a.rs", &lines(FILE_LINES - 1)), [""; 0]);
    assert_eq!(rules_broken_by("src/a.rs", &lines(FILE_LINES)), ["file-lines"]);
    let wide = format!("//! {}\n", "ä".repeat(COLUMNS - 4));
    assert_eq!(rules_broken_by("src/a.rs", &wide), [""; 0]);
    assert_eq!(rules_broken_by("src/a.rs", &wide.replacen("ä", "ää", 1)), ["columns"]);
}

#[test]
fn long_functions_are_found() {
    let function = |body: usize| {
        let body = "        let s = \"}\";\n".repeat(body);
        format!(
            "//! E.\nimpl A {{\n    pub(crate) fn f(\n        a: u8,\n    ) \
             -> u8 {{\n{body}    }}\n}}\n"
        )
    };
    assert_eq!(rules_broken_by("src/a.rs", &function(FUNCTION_LINES - 4)), [""; 0]);
    assert_eq!(rules_broken_by("src/a.rs", &function(FUNCTION_LINES - 3)), ["function-lines"]);
    let declared = format!("//! E.\ntrait A {{\n    fn f();\n{}}}\n", "    // x\n".repeat(99));
    assert_eq!(rules_broken_by("src/a.rs", &declared), [""; 0]);
}

#[test]
fn vague_names_are_found_in_identifiers_only() {
    for code in ["struct PeerManager;", "fn open_tunnel() {}", "mod utils;", "let helper_2 = 1;"] {
        assert_eq!(
            rules_broken_by("src/a.rs", &format!("//! E.\n{code}\n")),
            ["vague-name"],
            "{code}"
        );
    }
    assert_eq!(rules_broken_by("src/common.rs", "//! E.\n"), ["vague-name"]);
    let fine = "//! E.\n// a tunnel\n/* common */ const A: &str = \"util\"; \
                const B: &str = r#\"helper\"#;\n";
    assert_eq!(rules_broken_by("src/a.rs", fine), [""; 0]);
    assert_eq!(
        rules_broken_by("src/a.rs", "//! E.\nfn utility(commons_x: u8) {}\n"),
        ["vague-name"]
    );
    assert_eq!(rules_broken_by("src/a.rs", "//! E.\nfn get_peer() {}\n"), ["get-prefix"]);
}

#[test]
fn missing_essays_are_found() {
    let essay = |lines: usize| "//! Line.\n".repeat(lines);
    assert_eq!(rules_broken_by("src/a.rs", "fn f() {}\n"), ["essay"]);
    assert_eq!(rules_broken_by("core/packets/wire/src/lib.rs", &essay(19)), ["essay"]);
    assert_eq!(rules_broken_by("core/packets/wire/src/lib.rs", &essay(20)), [""; 0]);
    assert_eq!(rules_broken_by("core/packets/wire/src/lib.rs", &essay(81)), ["essay"]);
}

#[test]
fn misplaced_unsafe_is_found() {
    let code = "//! E.\nfn f(a: *const u8) -> u8 {\n    unsafe { *a }\n}\n";
    assert_eq!(rules_broken_by("core/packets/wire/src/a.rs", code), ["unsafe"]);
    assert_eq!(rules_broken_by("shell/host/src/a.rs", code), [""; 0]);
    assert_eq!(
        rules_broken_by("src/a.rs", "//! E.\n#![forbid(unsafe_code)]\n// unsafe\n"),
        [""; 0]
    );
}

#[test]
fn places_and_unfinished_work_are_found() {
    for (a, b) in PLACES {
        assert_eq!(rules_broken_by("docs/a.md", &format!("see `{a}{b}x`\n")), ["place"]);
        assert_eq!(
            rules_broken_by("docs/a.md", &format!("see https://example.org{a}{b}x\n")),
            [""; 0]
        );
    }
    for (a, b) in UNFINISHED {
        assert_eq!(rules_broken_by("Makefile", &format!("# {a}{b}: later\n")), ["unfinished"]);
    }
}

#[test]
fn unknown_threats_and_missing_proofs_are_found() {
    let table = "| DP-01 | a | b | `noise::gate::silent` | proved |\n\
                 | DP-02 to DP-04, DP-06 | a | b | – | later |\n";
    let rules = |table: &str, code: &str| {
        let code = Source::new("core/packets/noise/src/gate.rs", code);
        let sources = [Source::new("docs/threats.md", table), code];
        threats(&sources).into_iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    let silent = |code: &str| format!("//! {code}\n#[test]\nfn silent() {{}}\n");
    assert_eq!(rules(table, &silent("DP-01, DP-03, DP-06, AES-25, AB-99")), [""; 0]);
    assert_eq!(rules(table, &silent("DP-05.")), ["DP-05 is unknown"]);
    assert_eq!(rules(table, &silent("\nfn dp_77_flood() {}")), ["DP-77 is unknown"]);
    let no_test = ["DP-01: no test is called noise::gate::silent"];
    assert_eq!(rules(table, "//! E.\n"), no_test);
    assert_eq!(rules(table, "//! E.\nfn silent() {}\n"), no_test);
    assert_eq!(rules(table, "//! E.\n#[test]\n#[ignore = \"soak\"]\nfn silent() {}\n"), no_test);
    let unproved = table.replace("later", "proved");
    assert_eq!(rules(&unproved, &silent("")), ["DP-02: proved by no test"]);
}

#[test]
fn statements_without_their_tests_are_found() {
    let table = "| 002.5 (1) | a | `one`, `two` | `row` |\n";
    let code = Source::new("src/a.rs", "#[test]\nfn one() {}\n");
    let sources = [Source::new("docs/sources.md", table), code];
    assert_eq!(statements(&sources)[0].what, "no test is called two");
}

#[test]
fn an_excuse_covers_its_file_and_fails_when_not_needed() {
    let sources = [Source::new("docs/threats.md", ""), Source::new("src/a.rs", "fn f() {}\n")];
    assert_eq!(check(&sources, &[]).len(), 1);
    assert_eq!(check(&sources, &[("essay", "src/a.rs", "")]).len(), 0);
    let stale = check(&sources, &[("essay", "src/a.rs", ""), ("essay", "src/b.rs", "")]);
    assert_eq!(stale, ["ALLOW: essay for src/b.rs is not needed"]);
}
