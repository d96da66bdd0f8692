//! What is said where a word is missing that the environment can say, too: a service has its words
//! from a file in `/etc/default`, and whoever reads its log looks for the name there.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command};

use crate::foreign;

/// Says what `error` says, with the names of variables for what is missing.
pub(crate) fn tell(program: &Command, asked: &str, error: &Error) -> ExitCode {
    if let Some(meant) = foreign::meant(asked, error) {
        let _ = io::stderr().write_all(meant.as_bytes());
        return ExitCode::from(2);
    }
    let _ = error.print();
    for (flag, variable) in variables(program, asked, error) {
        // not eprintln, which panics when standard error is closed
        let _ = writeln!(
            io::stderr(),
            "\n  tip: {flag} can be {variable} in the environment; that of a service is its file \
             in /etc/default"
        );
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Flags that are missing, and the variable of each that has one.
fn variables(program: &Command, asked: &str, error: &Error) -> Vec<(String, String)> {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(words)) if is_missing(error) => words.as_slice(),
        _ => &[],
    };
    let Some(command) = program.find_subcommand(asked) else { return Vec::new() };
    let find = |word: &String| {
        let flag = word.split([' ', '=']).next()?;
        let is_it = |arg: &&Arg| arg.get_long().is_some_and(|long| flag == format!("--{long}"));
        let variable = command.get_arguments().find(is_it)?.get_env()?;
        Some((flag.to_owned(), variable.to_string_lossy().into_owned()))
    };
    missing.iter().filter_map(find).collect()
}

fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::MissingRequiredArgument
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn what_is_missing_is_named_as_the_environment_has_it() {
        let named = |words: &[&str]| {
            let mut program = crate::Cli::command();
            let error = program.try_get_matches_from_mut(words).unwrap_err();
            let found = variables(&program, words[1], &error);
            found.into_iter().map(|(flag, name)| format!("{flag} {name}")).collect::<Vec<_>>()
        };
        // Variables of whoever runs the tests would be taken for an answer.
        if std::env::var_os("WARREN_URL").is_none() && std::env::var_os("WARREN_TOKEN").is_none() {
            assert_eq!(named(&["warren", "serve"]), ["--url WARREN_URL"]);
            let both = ["--token WARREN_TOKEN", "--url WARREN_URL"];
            assert_eq!(named(&["warren", "relay"]), both);
        }
        assert_eq!(named(&["warren", "serve", "--no-such"]), [""; 0]);
        assert_eq!(named(&["warren", "link", "add"]), [""; 0]);
    }
}
