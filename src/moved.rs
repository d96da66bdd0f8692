//! `warren lab`, `bench` and `demo`: where they went.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Words that are another program's now.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Words {
    /// Is `warren-lab` now.
    #[command(hide = true, disable_help_flag = true)]
    Lab(Rest),
    /// Is `warren-lab bench` now.
    #[command(hide = true, disable_help_flag = true)]
    Bench(Rest),
    /// Is `warren-lab demo` now.
    #[command(hide = true, disable_help_flag = true)]
    Demo(Rest),
}

/// Whatever follows.
#[derive(Debug, clap::Args)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

impl Words {
    /// Says it, as of any word that is wrong.
    pub(crate) fn tell(self) -> ExitCode {
        let (word, now, rest) = match self {
            Self::Lab(rest) => ("lab", "warren-lab", rest),
            Self::Bench(rest) => ("bench", "warren-lab bench", rest),
            Self::Demo(rest) => ("demo", "warren-lab demo", rest),
        };
        let mut line = now.to_owned();
        for word in rest.words {
            line.push(' ');
            line += &word.to_string_lossy();
        }
        let told = format!("warren: {word} is in a program of its own now: type `{line}`\n");
        let _ = io::stderr().write_all(told.as_bytes());
        ExitCode::from(2)
    }
}
