//! What is said of each command beside its words: examples, files, and what completes a name.

use pages::Book;

/// Of `warren-lab`.
pub(crate) const BOOK: Book = Book {
    examples: &EXAMPLES,
    files: &[("", &[("/usr/share/doc/warren/topologies", "Examples of topology files.")])],
    environment: &[],
    services: &[],
    named: &[("down", "labs")],
    named_flags: &[("--lab", "labs")],
};

const EXAMPLES: [(&str, &str); 25] = [
    (
        "",
        "sudo warren-lab demo                       a server and six nodes at work
warren-lab init net.toml                   a topology file with comments
sudo warren-lab up net.toml                the network of it
sudo warren-lab bench run --out quick      Warren beside other VPNs",
    ),
    (
        "init",
        "warren-lab init net.toml      two sites behind NATs and a server between
sudo warren-lab up net.toml",
    ),
    ("up", "warren-lab up net.toml"),
    (
        "exec",
        "warren-lab exec alice ping -c 3 10.0.0.1   a command in the host alice
warren-lab exec --lab net alice bash       a shell there",
    ),
    (
        "impair",
        "warren-lab impair uplink medium                        a profile
warren-lab impair uplink delay=40ms loss=2% burst=3    words
warren-lab impair --direction forth uplink rate=5mbit  one direction",
    ),
    ("status", "warren-lab status\nwarren-lab status --json"),
    ("down", "warren-lab down"),
    ("proxy", "warren-lab proxy --listen 10.0.0.1:3128"),
    (
        "bench",
        "warren-lab bench list                   who can be measured here
sudo warren-lab bench run --out quick   measures
warren-lab bench report quick           writes quick/report.html",
    ),
    ("bench link", "sudo warren-lab bench link --scenario tcp1 --rounds 5 --out results"),
    ("bench network", "sudo warren-lab bench network --out results"),
    ("bench carriers", "sudo warren-lab bench carriers --out results"),
    ("bench nest", "sudo warren-lab bench nest --rounds 3 --out results"),
    ("bench circuit", "sudo warren-lab bench circuit --quick --out results"),
    ("bench sites", "sudo warren-lab bench sites --rounds 1 --edges 3 --out results"),
    (
        "bench bandwidth",
        "sudo warren-lab bench bandwidth --line 10 --beside 40 --runs 5 --out results",
    ),
    ("bench list", "warren-lab bench list"),
    (
        "bench run",
        "sudo warren-lab bench run --peers none,warren --profiles medium --links 1 \
         --seconds 10 --out quick",
    ),
    ("bench report", "warren-lab bench report quick"),
    ("bench chart", "warren-lab bench chart all --out stream.svg"),
    ("bench compare", "warren-lab bench compare before after"),
    ("bench publish", "warren-lab bench publish ring all --out page   writes page/index.html"),
    ("demo", "sudo warren-lab demo --quick\nsudo warren-lab demo --sites"),
    ("completions", "warren-lab completions bash > /etc/bash_completion.d/warren-lab"),
    ("man", "warren-lab man /usr/local/share/man/man1"),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_has_an_example_and_every_example_is_a_command() {
        let wanting = pages::wanting(&BOOK.dress(crate::Cli::command()));
        assert!(wanting.is_empty(), "add to lab/program/src/examples.rs:\n{}", wanting.join("\n"));
    }
}
