//! What `warren --help` shows: the words in groups, and in each what is used most first.

use std::fmt::Write as _;

use clap::Command;

/// Every word that is not hidden, in one group.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Node",
        &[
            "up",
            "down",
            "status",
            "ping",
            "bandwidth",
            "why",
            "whois",
            "ip",
            "exit-node",
            "circuit",
            "set",
            "doctor",
            "netcheck",
            "wait",
            "logout",
            "metrics",
            "ros",
            "debug",
            "daemon",
            "cleanup",
        ],
    ),
    (
        "Network",
        &[
            "serve", "key", "node", "peer", "policy", "route", "sites", "dns", "user", "token",
            "audit", "ui", "backup", "restore", "import", "relay",
        ],
    ),
    ("WireGuard", &["link", "wg", "genkey", "pubkey", "genpsk"]),
    ("Installation", &["completions"]),
];

/// The program's words with this help.
pub(crate) fn shown(program: Command) -> Command {
    let head = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    let template = format!("{head}{}Options:\n{{options}}{{after-help}}", listed(&program));
    program.help_template(template)
}

fn listed(program: &Command) -> String {
    let mut text = String::new();
    for (title, words) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for word in words {
            let found = program.find_subcommand(word);
            let about = found.and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_default();
            let end = about.find([';', ':']).unwrap_or(about.len());
            let _ = writeln!(text, "  {word:<13}{}", &about[..end]);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_word_stands_in_one_group_and_all_fit_on_a_screen() {
        let program = crate::Cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, words)| *words).copied().collect();
        let shown: Vec<&str> = program
            .get_subcommands()
            .filter(|word| !word.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut known = shown.clone();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
        let help = super::shown(crate::Cli::command()).render_help().to_string();
        assert!(help.lines().count() <= 60, "{help}");
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("no {word} in:\n{help}"));
        let titles = ["\nNode:\n  up ", "\nNetwork:\n  serve ", "\nWireGuard:\n  link "].map(at);
        assert!(titles.is_sorted(), "{titles:?}");
        assert!(!help.contains("warren-lab"), "what only says where it went is not shown");
    }
}
